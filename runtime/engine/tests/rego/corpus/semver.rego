package corpus.semver

import rego.v1

result := {
	"compare": [semver.compare("1.2.3", "1.10.0"), semver.compare("1.0.0", "1.0.0-rc.1"), semver.compare("2.0.0", "2.0.0")],
	"valid": [semver.is_valid("1.2.3"), semver.is_valid("1.2"), semver.is_valid("1.2.3-rc.1+b5")],
	"bad": [x | x := semver.compare("1", "2.0.0")],
}
