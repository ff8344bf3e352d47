;; Never takes its configuration.
;; expect: configure: timeout: used up
(func $configure (param i32 i32) (result i32) (loop $again (br $again)) unreachable)
