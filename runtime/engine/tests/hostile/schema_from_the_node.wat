;; Its schema refers to a file of the node.
;; expect: description: flaw: protocol.schema: `$ref` "file:///etc/passwd" names no part
(data (i32.const 4096) "{\22properties\22: {\22x\22: {\22$ref\22: \22file:///etc/passwd\22}}}")
(func $describe (result i32)
  (i32.store (i32.const 1112) (i32.const 4096))
  (i32.store (i32.const 1116) (i32.const 53))
  (i32.const 1024))
