package corpus.net_of_types

import rego.v1

kinds[name] := type_name(value) if some name, value in input

result := kinds
