package corpus.numa_shares

import rego.v1

shares[id] := round((local * 100) / all_pages) if {
	some id, row in input.numa.containers
	all_pages := sum([p.pages | some p in row.pages])
	local := sum([p.pages | some p in row.pages; p.node in row.cpuNodes])
}

result := {"shares": shares, "free": {n.id: n.freeBytes | some n in input.numa.nodes}}
