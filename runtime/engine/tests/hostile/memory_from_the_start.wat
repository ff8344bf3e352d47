;; Declares 2 GiB.
;; expect: start: memory: may have 33554432 B
(memory $memory 32768)
