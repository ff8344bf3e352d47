;; Says who it is, and then never comes out of the clean-up after the call.
;; expect: describe: timeout: used up
(func $start_over (param i32) (loop $again (br $again)))
