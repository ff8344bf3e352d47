package corpus.crypto

import rego.v1

result := {
	"md5": crypto.md5("a"),
	"sha1": crypto.sha1("a"),
	"sha256": crypto.sha256("grüß"),
	"hmac": [crypto.hmac.md5("a", "k"), crypto.hmac.sha1("a", "k"), crypto.hmac.sha256("a", "k"), crypto.hmac.sha512("a", "k")],
	"equal": [crypto.hmac.equal("a", "a"), crypto.hmac.equal("a", "b")],
}
