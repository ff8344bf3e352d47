;; Has its name clear the screen, set the terminal's title and turn what follows around.
;; expect: description: flaw: name: `\u{1b}[2j\u{1b}]0;x\u{7}\u{202e}` is not a name
(data (i32.const 4096) "\1b[2J\1b]0;x\07\e2\80\ae")
(func $describe (result i32)
  (i32.store (i32.const 1024) (i32.const 4096))
  (i32.store (i32.const 1028) (i32.const 13))
  (i32.const 1024))
