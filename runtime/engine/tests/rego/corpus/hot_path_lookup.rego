package corpus.hot_path_lookup

import rego.v1

throttled := {id: round((100 * row.nrThrottled) / row.nrPeriods) | some id, row in input.cpu; row.nrPeriods > 0}

result := {"throttled": throttled, "any": {id | some id, share in throttled; share > 20}}
