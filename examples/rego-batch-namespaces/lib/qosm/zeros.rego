# METADATA
# title: Zeros
# description: Samples in which every counter is 0. Written from input.schema.json.
package qosm.lib.zeros

cpu := {
	"usageUsec": 0,
	"nrPeriods": 0,
	"nrThrottled": 0,
	"throttledUsec": 0,
}

memory := {
	"usageBytes": 0,
	"anonBytes": 0,
	"fileBytes": 0,
	"inactiveFileBytes": 0,
	"highEvents": 0,
	"maxEvents": 0,
	"oomKills": 0,
}
