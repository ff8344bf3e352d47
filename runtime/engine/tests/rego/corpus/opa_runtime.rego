package corpus.opa_runtime

import rego.v1

result := type_name(opa.runtime())
