;; Never comes out of its start function.
;; expect: start: timeout: used up
(func $spin (loop $again (br $again)))
(start $spin)
