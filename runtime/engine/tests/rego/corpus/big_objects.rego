package corpus.big_objects

import rego.v1

table := {sprintf("k%d", [n]): n | some n in numbers.range(1, 500)}

result := {"size": count(table), "one": table.k77, "keys": count(object.keys(table)), "sum": sum([v | some v in table])}
