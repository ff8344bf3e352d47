;; Declares a table of ten million elements.
;; expect: start: memory: elements and may have 20000
(table $table 10000000 funcref)
