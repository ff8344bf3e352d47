;; Calls itself until the stack is used up.
;; expect: evaluate: trap: call stack exhausted
(func $deeper (param $depth i32) (result i32)
  (i32.add (call $deeper (i32.add (local.get $depth) (i32.const 1))) (i32.const 1)))
(func $evaluate (param i64 i32 i32 i32) (result i32) (call $deeper (i32.const 0)))
