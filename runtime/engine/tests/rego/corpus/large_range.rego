package corpus.large_range

import rego.v1

numbers_even := [n | some n in numbers.range(1, 2000); n % 2 == 0]

result := {"count": count(numbers_even), "sum": sum(numbers_even), "last": numbers_even[count(numbers_even) - 1]}
