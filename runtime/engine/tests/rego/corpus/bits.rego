package corpus.bits

import rego.v1

result := [bits.and(6, 3), bits.or(6, 3), bits.xor(6, 3), bits.negate(5), bits.lsh(1, 40), bits.rsh(1024, 3)]
