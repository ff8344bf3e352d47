//! The most expensive arguments of each function, as texts: several for each function, each expensive in another way.

const MIB: usize = 1 << 20;

fn quoted(text: &str) -> String {
    qosm_rego::Value::from(text).to_string()
}

fn array(elements: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", elements.into_iter().collect::<Vec<_>>().join(","))
}

fn set(elements: impl IntoIterator<Item = String>) -> String {
    format!("{{{}}}", elements.into_iter().collect::<Vec<_>>().join(","))
}

/// A text, repeated to this length in bytes.
fn long(text: &str, bytes: usize) -> String {
    quoted(&text.repeat(bytes / text.len()))
}

/// Arguments for any function and position: texts, collections that take far more memory than their text, deep values,
/// long numbers.
fn anything() -> Vec<String> {
    vec![
        long("a", MIB),
        long("\u{1}", MIB / 6),
        long("é", MIB),
        array(vec!["1".to_owned(); MIB / 2]),
        array(vec!["{1}".to_owned(); MIB / 4]),
        array(vec!["{1:1}".to_owned(); MIB / 6]),
        set((0..100_000).map(|n| n.to_string())),
        set((0..1_000).map(|n| array(vec!["1".to_owned(); 400].into_iter().chain([n.to_string()])))),
        format!("{{{}}}", (0..60_000).map(|n| format!("\"{n}\":{n}")).collect::<Vec<_>>().join(",")),
        array((0..1_000).map(|n| format!("{}{n}", "9".repeat(1_000)))),
        format!("{}1{}", "[".repeat(250), "]".repeat(250)),
        // Each level doubles the escapes of the level below.
        format!("{}\"a\":1{}", "{".repeat(200), "}:1".repeat(199) + "}"),
        "9".repeat(4_000),
        "1e4000".to_owned(),
    ]
}

/// Arguments of a function of one argument: any of [`anything`], and those that are worse for this function.
fn one(worse: Vec<String>) -> Vec<Vec<String>> {
    anything().into_iter().chain(worse).map(|argument| vec![argument]).collect()
}

/// Arguments of a function of two arguments: any of [`anything`] with a small other argument, and those that are worse
/// for this function.
fn two(little: [&str; 2], worse: Vec<[String; 2]>) -> Vec<Vec<String>> {
    let [first, second] = little;
    let left = anything().into_iter().map(|argument| vec![argument, second.to_owned()]);
    let right = anything().into_iter().map(|argument| vec![first.to_owned(), argument]);
    left.chain(right).chain(worse.into_iter().map(Vec::from)).collect()
}

fn times() -> Vec<Vec<String>> {
    one(vec![
        "[0,\"Europe/Berlin\"]".to_owned(),
        format!("[0,{}]", long("Europe/", MIB)),
        format!("[{},\"UTC\"]", "1e4000"),
    ])
}

/// Expressions that are slow or become large.
fn expressions() -> Vec<String> {
    vec![
        "[ab]*a[ab]{900}c|a|b".to_owned(),
        "(a*)*b".to_owned(),
        "(?i)\\pL".repeat(500),
        "(?i)[^a]\\pL\\PL".repeat(200),
        "\\pL{1,20}x".repeat(20),
        "(.*)(.*)(.*)(.*)(.*)[^ab]|(a)".to_owned(),
        "()".repeat(2_000),
        "(a?){400}a{400}".to_owned(),
        "a{1000}".to_owned(),
        "((a{100}){100}){100}".to_owned(),
        "(?:a|ab|b|ba)*c|.".to_owned(),
        "x*".to_owned(),
    ]
}

fn patched(operation: &str, count: usize) -> String {
    array((0..count).map(|n| operation.replace('N', &n.to_string())))
}

fn schemas() -> Vec<String> {
    let nested = |keyword: &str, depth: usize| {
        format!(
            "{}{{\"type\":\"null\"}}{}",
            format!("{{\"{keyword}\":[").repeat(depth),
            ",{\"type\":\"string\"}]}".repeat(depth)
        )
    };
    let refs = |count: usize, definition: &str| {
        format!(
            "{{\"allOf\":{},\"definitions\":{{\"a\":{definition}}}}}",
            array((0..count).map(|_| "{\"$ref\":\"#/definitions/a\"}".to_owned()))
        )
    };
    let patterns = |count: usize, pattern: &str| {
        let each = (0..count).map(|n| format!("{{\"pattern\":{}}}", quoted(&pattern.replace('N', &n.to_string()))));
        format!("{{\"items\":{{\"allOf\":{}}}}}", array(each))
    };
    let properties = (0..5_000).map(|n| format!("\"p{n}\":{{\"type\":\"string\",\"minLength\":1}}"));
    vec![
        refs(2_000, &format!("{{\"title\":{}}}", long("a", MIB))),
        refs(2_000, &format!("{{\"enum\":{}}}", array((0..10_000).map(|n| n.to_string())))),
        refs(5_000, "{\"type\":\"string\",\"format\":\"email\"}"),
        patterns(1_500, "aN"),
        patterns(20, "N[ab]*a[ab]{900}c"),
        patterns(200, "(a|b)*N(?i)\\\\pL"),
        nested("anyOf", 100),
        nested("oneOf", 100),
        nested("allOf", 100),
        format!("{}{{}}{}", "{\"not\":".repeat(100), "}".repeat(100)),
        format!(
            "{}{{}}{}",
            "{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\"unevaluatedProperties\":".to_owned()
                + &"{\"unevaluatedProperties\":".repeat(60),
            "}".repeat(61)
        ),
        format!("{{\"properties\":{{{}}}}}", properties.collect::<Vec<_>>().join(",")),
        format!("{{\"enum\":{}}}", array((0..100_000).map(|n| n.to_string()))),
        "{\"items\":{\"enum\":[1,2,3]}}".to_owned(),
        "{\"items\":{\"format\":\"regex\"}}".to_owned(),
        "{\"items\":{\"format\":\"idn-hostname\"}}".to_owned(),
        "{\"items\":{\"format\":\"uri\"}}".to_owned(),
        "{\"uniqueItems\":true}".to_owned(),
        "{\"additionalProperties\":{\"type\":\"null\"},\"patternProperties\":{\"^(a|b)*c\":{}}}".to_owned(),
        format!("{{\"required\":{}}}", array((0..20_000).map(|n| format!("\"r{n}\"")))),
        "{\"items\":{\"multipleOf\":1e-300}}".to_owned(),
    ]
}

fn documents() -> Vec<String> {
    vec![
        array(vec!["1".to_owned(); 100_000]),
        array(vec![long("ab", 10_000); 20]),
        array((0..20_000).map(|n| quoted(&format!("(a|b){n}")))),
        format!("{{{}:[1,2,3,4]}}", long("k", MIB / 2)),
        format!("{{{}}}", (0..20_000).map(|n| format!("\"k{n}\":\"v\"")).collect::<Vec<_>>().join(",")),
    ]
}

fn yaml() -> Vec<String> {
    let bomb = (0..30).map(|n| match n {
        0 => "a0: &a0 [x, x]\n".to_owned(),
        n => format!("a{n}: &a{n} [*a{0}, *a{0}, *a{0}, *a{0}]\n", n - 1),
    });
    let scalars = format!("a: &a {}\nb: [{}]\n", "x".repeat(500_000), "*a,".repeat(50_000));
    [
        bomb.collect(),
        scalars,
        "[".repeat(500_000),
        "- ".repeat(300_000),
        "{a},".repeat(100_000),
        format!("[{}]", "{a: b},".repeat(60_000)),
        format!("[{}]", "a,".repeat(300_000)),
        "a: b\n".repeat(100_000),
        (0..60_000).map(|n| format!("k{n}: {n}\n")).collect(),
        "? a\n".repeat(100_000),
        format!("a: |\n{}", " x\n".repeat(200_000)),
        format!("\"{}\"", "\\x41".repeat(200_000)),
        "--- 1\n".repeat(100_000),
        "#".repeat(MIB),
        "!!str ".repeat(100_000),
        "&a ".repeat(100_000),
    ]
    .map(|text| quoted(&text))
    .to_vec()
}

fn graph(edges: usize, node: usize) -> String {
    let middle = long("m", node);
    let ends = array((0..edges).map(|n| format!("\"e{n}\"")));
    let each = (0..edges).map(|n| format!("\"e{n}\":[]"));
    format!("{{\"s\":[{middle}],{middle}:{ends},{}}}", each.collect::<Vec<_>>().join(","))
}

/// The most expensive arguments of a function; empty for a function without an entry.
pub(crate) fn worst(name: &str) -> Vec<Vec<String>> {
    let networks = |count: usize| array((0..count).map(|n| format!("\"10.{}.{}.0/24\"", n / 250 % 250, n % 250)));
    match name {
        "cast_array" | "cast_boolean" | "cast_null" | "cast_object" | "cast_set" | "cast_string" => one(vec![]),
        "crypto.md5" | "crypto.sha1" | "crypto.sha256" | "hex.encode" | "base64url.encode_no_pad" => one(vec![]),
        "hex.decode" => one(vec![long("c3a9", MIB), long("41", MIB)]),
        "crypto.hmac.md5" | "crypto.hmac.sha1" | "crypto.hmac.sha256" | "crypto.hmac.sha512" | "crypto.hmac.equal" => {
            two(["\"a\"", "\"a\""], vec![[long("a", MIB - 100), long("a", MIB - 100)]])
        }
        "urlquery.encode" => one(vec![long(" ", MIB / 4), long("%", MIB / 4)]),
        "urlquery.decode" => one(vec![long("%20", MIB), long("+", MIB)]),
        "urlquery.encode_object" => one(vec![
            format!("{{{}:{}}}", long("k", 1_000), array((0..100_000).map(|_| "\"\"".to_owned()))),
            format!("{{{}}}", (0..20_000).map(|n| format!("[{n}]:\"&\"")).collect::<Vec<_>>().join(",")),
        ]),
        "urlquery.decode_object" => one(vec![
            long("a=b&", 39_000),
            quoted(&(0..9_999).map(|n| format!("k{n}=&")).collect::<String>()),
            long("&", MIB),
        ]),
        "semver.is_valid" => one(vec![quoted(&format!("1.0.0-{}", "a.".repeat(MIB / 2) + "a"))]),
        "semver.compare" => {
            let version = quoted(&format!("1.0.0-{}", "1.".repeat(MIB / 2 - 100) + "1"));
            two(["\"1.0.0\"", "\"1.0.0\""], vec![[version.clone(), version]])
        }
        "uri.is_valid" | "uri.parse" => one(vec![
            quoted(&format!("http://{}", "%41".repeat(MIB / 3))),
            quoted(&format!("http://a/{}", "%20é<".repeat(MIB / 8))),
            quoted(&format!("http://{}@a/", "u".repeat(MIB))),
            quoted(&format!("http://a:{}/", ":".repeat(MIB))),
            quoted(&format!("http://[{}]/", ":".repeat(MIB))),
            quoted(&format!("{}:x", "a".repeat(MIB))),
        ]),
        "uuid.parse" | "units.parse" | "units.parse_bytes" => one(vec![
            quoted(&format!("{}m", "9".repeat(4_000))),
            quoted(&format!("{}.{}e-4000Gi", "9".repeat(2_000), "9".repeat(2_000))),
            "\"1e-4000\"".to_owned(),
            "\"1e4000Ei\"".to_owned(),
            quoted(&format!("1{}", "x".repeat(MIB))),
        ]),
        "glob.quote_meta" => one(vec![long("*", MIB / 2), long("*", MIB)]),
        "indexof_n" => two(
            ["\"a\"", "\"a\""],
            vec![
                [long("a", MIB), long("a", MIB / 2)],
                [long("a", MIB), quoted(&format!("{}b", "a".repeat(1_000)))],
                [long("ab", 120_000), "\"a\"".to_owned()],
            ],
        ),
        "sprintf" => {
            let many = |verb: &str, count: usize| quoted(&verb.repeat(count));
            let mut worse = vec![
                [many("%1000000d", 1_000), array((0..1_000).map(|n| n.to_string()))],
                [quoted("%*d%*d"), "[1000000,1,1000000,1]".to_owned()],
                [many("%[1].1100g", 100_000), "[0.5]".to_owned()],
                [many("%[1].1100f", 100_000), "[5e-324]".to_owned()],
                [many("%[1].1000000f", 10), "[5e-324]".to_owned()],
                [many("%[1].1100e", 100_000), "[1.7976931348623157e308]".to_owned()],
                [many("%[1]d", 200_000), format!("[{}]", "9".repeat(4_000))],
                [many("%[1]#b", 200_000), format!("[{}]", "9".repeat(4_000))],
                [many("%[1].0s", 150_000), format!("[{}]", long("a", MIB / 2))],
                [many("%[1].1s", 150_000), format!("[{}]", long("é", MIB / 2))],
                [quoted("%q"), format!("[{}]", long("\u{1}", MIB / 6))],
                [quoted("%+q"), format!("[{}]", long("\u{10ffff}", MIB))],
                [quoted("%x"), format!("[{}]", long("a", MIB))],
                [quoted("% #x"), format!("[{}]", long("a", MIB))],
                [quoted("%.1000000x"), format!("[{}]", long("a", MIB))],
                [quoted("%v"), format!("[{}]", array((0..200_000).map(|n| n.to_string())))],
                [many("%", MIB), "[]".to_owned()],
                [many("%z", MIB / 4), array((0..100_000).map(|n| n.to_string()))],
                [quoted(""), array((0..200_000).map(|n| n.to_string()))],
                [many("%[1]T", 200_000), "[1]".to_owned()],
                [many("%[1]U", 200_000), "[1]".to_owned()],
            ];
            worse.extend([[many("%[9", 300_000), "[1]".to_owned()], [many("%1000001", 100_000), "[1]".to_owned()]]);
            two(["\"%v\"", "[1]"], worse)
        }
        "strings.any_prefix_match" | "strings.any_suffix_match" => {
            let numbers = || array((0..30_000).map(|n| format!("\"a{n}\"")));
            let same = |text: &str| array((0..100).map(|n| quoted(&format!("{n}{}{n}", text.repeat(8_000)))));
            two(
                ["\"a\"", "\"b\""],
                vec![
                    [numbers(), numbers()],
                    [same("a"), same("a")],
                    [array(vec![long("a", 2_000); 400]), array(vec![quoted(&format!("b{}b", "a".repeat(1_990))); 400])],
                    [array((0..60_000).map(|_| "\"\"".to_owned())), set([long("a", MIB)])],
                ],
            )
        }
        "strings.count" => two(
            ["\"a\"", "\"a\""],
            vec![[long("a", MIB), "\"\"".to_owned()], [long("a", MIB), quoted(&format!("{}b", "a".repeat(MIB / 2)))]],
        ),
        "strings.split_n" => {
            let triple = |text: String, by: &str, count: &str| vec![text, quoted(by), count.to_owned()];
            vec![
                triple(long(",", MIB), ",", "-1"),
                triple(long("a,", 130_000), ",", "-60000"),
                triple(long("a", 60_000), "", "60000"),
                triple(long("a", MIB), "", "-1"),
                triple(long("é", MIB), "b", "1"),
                vec![long("a", MIB), long("a", MIB / 2), "5".to_owned()],
            ]
        }
        "regex.find_n" | "regex.split" | "regex.replace" => {
            let texts = [long("ab", 8_192), long("a", 100_000), long("é", 100_000), long("ba", MIB)];
            let both =
                expressions().into_iter().flat_map(|expression| texts.clone().map(|text| (quoted(&expression), text)));
            match name {
                "regex.find_n" => both.map(|(expression, text)| vec![expression, text, "-1".to_owned()]).collect(),
                "regex.split" => both.map(|(expression, text)| vec![expression, text]).collect(),
                _ => both
                    .flat_map(|(expression, text)| {
                        ["\"x\"".to_owned(), long("${1}$x$$", 2_000)]
                            .map(|to| vec![text.clone(), expression.clone(), to])
                    })
                    .collect(),
            }
        }
        "regex.template_match" => {
            let braces =
                |template: String, text: String| vec![quoted(&template), text, "\"{\"".to_owned(), "\"}\"".to_owned()];
            let mut cases: Vec<_> = expressions()
                .into_iter()
                .map(|expression| {
                    braces(format!("a<{expression}>").replace('{', "(").replace('}', ")"), long("ab", MIB))
                })
                .collect();
            cases.push(braces("{[ab]*a[ab]+[ab]+[ab]+c}".to_owned(), long("ab", MIB)));
            cases.push(braces((0..400).map(|n| format!("{{a{n}}}")).collect(), long("ab", MIB)));
            cases.push(braces("{a}".repeat(100_000), "\"a\"".to_owned()));
            cases.push(braces("x".repeat(MIB), "\"a\"".to_owned()));
            cases.push(vec![quoted("<[ab]*a[ab]{200}c>"), long("ab", MIB), "\"<\"".to_owned(), "\">\"".to_owned()]);
            cases
        }
        "regex.globs_match" => {
            let sets = |count: usize| format!("[{}]+", "a-zA-Z0-9").repeat(count);
            let wide = |count: usize| "[\u{100}-\u{ffff}]".repeat(count);
            let cases = [
                ["a*".repeat(1_000), "a*".repeat(1_000) + "b"],
                ["a*".repeat(30), "a*".repeat(30) + "b"],
                [sets(20), sets(20) + "!"],
                [".*".repeat(20) + "[ab]", ".*".repeat(20) + "[cd]"],
                [wide(1), wide(1)],
                [format!("[{}]", "\u{100}-\u{ffff}".repeat(900)), "a".to_owned()],
                [format!("{}!", "[\u{100}-\u{1fff}]*".repeat(7)), format!("{}?", "[\u{100}-\u{1fff}]*".repeat(7))],
            ];
            let mut cases: Vec<Vec<String>> = cases.map(|pair| pair.map(|glob| quoted(&glob)).to_vec()).to_vec();
            cases.extend(two(["\"a\"", "\"a\""], vec![]));
            cases
        }
        "json.patch" => {
            let elements = array((0..30_000).map(|n| n.to_string()));
            let set_of_arrays = set((0..200).map(|n| array((0..100).map(|m| (n + m).to_string()))));
            let mut deep = String::new();
            let deeper = array((0..400).map(|_| {
                deep.push_str("/a");
                format!("{{\"op\":\"add\",\"path\":\"{deep}\",\"value\":{{}}}}")
            }));
            two(
                ["{}", "[]"],
                vec![
                    [elements.clone(), patched("{\"op\":\"add\",\"path\":\"/0\",\"value\":1}", 20_000)],
                    [elements.clone(), patched("{\"op\":\"test\",\"path\":\"\",\"value\":1}", 20_000)],
                    [
                        elements.clone(),
                        format!(
                            "[{}]",
                            format!("{{\"op\":\"test\",\"path\":\"\",\"value\":{elements}}},").repeat(5)
                                + "{\"op\":\"remove\",\"path\":\"\"}"
                        ),
                    ],
                    ["{}".to_owned(), patched("{\"op\":\"copy\",\"from\":\"\",\"path\":\"/N\"}", 64)],
                    ["{}".to_owned(), deeper],
                    ["{}".to_owned(), format!("[{{\"op\":\"add\",\"path\":{},\"value\":1}}]", long("/", MIB))],
                    [
                        set_of_arrays.clone(),
                        format!(
                            "[{}]",
                            format!(
                                "{{\"op\":\"add\",\"path\":[{},0],\"value\":1}},",
                                array((0..100).map(|m| m.to_string()))
                            )
                            .repeat(2_000)
                                + "{\"op\":\"remove\",\"path\":\"\"}"
                        ),
                    ],
                ],
            )
        }
        "json.marshal_with_options" => {
            let nested = format!("{}{}{}", "[".repeat(250), array((0..10_000).map(|n| n.to_string())), "]".repeat(250));
            two(
                ["1", "{}"],
                vec![
                    [nested, "{\"indent\":\"                    \"}".to_owned()],
                    ["[[[[1,2]]]]".to_owned(), format!("{{\"indent\":{}}}", long(" ", 400_000))],
                    ["1".to_owned(), format!("{{\"prefix\":{}}}", long(" ", MIB))],
                    [long("<", MIB), "{}".to_owned()],
                ],
            )
        }
        "json.verify_schema" => one(schemas()
            .into_iter()
            .chain(schemas().iter().map(|schema| quoted(schema)))
            .filter(|text| text.len() <= 2 * MIB)
            .collect()),
        "json.match_schema" => {
            let both = schemas()
                .into_iter()
                .flat_map(|schema| documents().into_iter().map(move |document| [document, schema.clone()]));
            two(["{}", "{}"], both.filter(|pair| pair.iter().map(String::len).sum::<usize>() < 2 * MIB).collect())
        }
        "yaml.is_valid" | "yaml.unmarshal" => one(yaml()),
        "yaml.marshal" => one(vec![
            format!("{}{}{}", "[".repeat(250), long("a\n", MIB / 2), "]".repeat(250)),
            format!("{}{}{}", "[".repeat(250), array((0..60_000).map(|n| n.to_string())), "]".repeat(250)),
            long("'", MIB),
            long("1:", MIB),
            format!("[{}]", "1e300,".repeat(100_000) + "1"),
        ]),
        "graph.reachable_paths" => {
            let layers =
                (0..30).map(|n| format!("\"{n}\":[\"{n}a\",\"{n}b\"],\"{n}a\":[\"{0}\"],\"{n}b\":[\"{0}\"]", n + 1));
            let line = (0..60_000).map(|n| format!("{n}:[{}]", n + 1));
            let full = (0..60).map(|n| format!("{n}:{}", array((0..60).map(|m| m.to_string()))));
            let object =
                |pairs: &mut dyn Iterator<Item = String>| format!("{{{}}}", pairs.collect::<Vec<_>>().join(","));
            two(
                ["{}", "[]"],
                vec![
                    [graph(2_000, MIB / 2), "[\"s\"]".to_owned()],
                    [graph(2_000, 1_000), "[\"s\"]".to_owned()],
                    [object(&mut layers.into_iter()), "[\"0\"]".to_owned()],
                    [object(&mut line.into_iter()), "[0]".to_owned()],
                    [object(&mut full.into_iter()), "[0]".to_owned()],
                ],
            )
        }
        "object.subset" => {
            let numbers = |from: usize, count: usize| array((from..from + count).map(|n| n.to_string()));
            let large = |last: &str| array((0..1_000).map(|n| format!("{}{n}{last}", "9".repeat(700))));
            let nested = |last: &str| format!("{}{last}{}", "{\"a\":".repeat(250), "}".repeat(250));
            let wide =
                |last: &str| format!("{{\"a\":{}}}", array(vec![format!("[{}{last}]", "1,".repeat(1_000)); 200]));
            two(
                ["[]", "[]"],
                vec![
                    [numbers(0, 5_000), numbers(1_500, 4_000)],
                    [
                        array(vec!["1".to_owned(); 100_000]),
                        array(vec!["1".to_owned(); 50_000].into_iter().chain(["2".to_owned()])),
                    ],
                    [large("1"), large("1")],
                    [large("1"), large("2")],
                    [
                        format!(
                            "{{{}}}",
                            (0..700).map(|n| format!("{}{n}", "9".repeat(700))).collect::<Vec<_>>().join(",")
                        ),
                        large("1"),
                    ],
                    [
                        large("1"),
                        format!(
                            "{{{}}}",
                            (0..700).map(|n| format!("{}{n}", "9".repeat(700))).collect::<Vec<_>>().join(",")
                        ),
                    ],
                    [nested("1"), nested("2")],
                    [wide("1"), wide("2")],
                ],
            )
        }
        "net.cidr_contains_matches" => two(
            ["\"10.0.0.0/8\"", "\"10.0.0.0/8\""],
            vec![
                [networks(30_000), networks(30_000)],
                [networks(3_000), "\"10.1.1.1\"".to_owned()],
                [format!("{{{}:\"10.0.0.0/8\"}}", long("k", MIB)), networks(30_000)],
                [
                    array((0..2_000).map(|_| "\"0.0.0.0/0\"".to_owned())),
                    array((0..2_000).map(|_| "\"1.1.1.1\"".to_owned())),
                ],
            ],
        ),
        "net.cidr_expand" => one(vec![
            "\"10.0.0.0/16\"".to_owned(),
            "\"10.0.0.0/8\"".to_owned(),
            "\"::/0\"".to_owned(),
            "\"2001:db8:1111:2222:3333:4444:5555:0/112\"".to_owned(),
            "\"10.0.0.0/19\"".to_owned(),
        ]),
        "net.cidr_is_valid" => one(vec![]),
        "net.cidr_merge" => one(vec![
            networks(60_000),
            array((0..40_000).map(|n| format!("\"10.{}.{}.{}/32\"", n / 10_000, n / 100 % 100, n % 100 * 2))),
            array((0..20_000).map(|n| format!("\"{:x}::1/128\",\"{:x}:ffff:ffff:ffff::/64\"", n + 1, n + 1))),
            array((0..10_000).flat_map(|n| [format!("\"{:x}::1/127\"", n + 1), format!("\"{:x}::2/127\"", n + 1)])),
        ]),
        "numbers.range_step" => {
            let case = |from: &str, to: &str, step: &str| [from, to, step].map(str::to_owned).to_vec();
            let large = "9".repeat(4_000);
            let next = format!("1{}65000", "0".repeat(3_995));
            vec![
                case("0", "65000", "1"),
                case("0", "1000000000000", "1"),
                case("0", "1e4000", "1"),
                case(&large, &next, "1"),
                case(&large, &format!("-{large}"), &format!("1{}", "0".repeat(3_996))),
                case("0", "5000000000000000000000000", "100000000000000000000"),
                case(&format!("[{}1]", "1,".repeat(MIB / 2)), "1", "1"),
            ]
        }
        "time.clock" | "time.date" | "time.weekday" => times(),
        "time.format" => {
            let mut cases = times();
            for layout in ["January", "2006", "x", "_", ".000000000", ",", "-07:00:0", "Z07:0", "MST"] {
                cases.push(vec![format!("[0,\"Europe/Berlin\",{}]", long(layout, MIB / 4))]);
                cases.push(vec![format!("[0,\"UTC\",{}]", long(layout, MIB))]);
            }
            cases
        }
        "time.diff" => two(["0", "[0,\"Europe/Berlin\"]"], vec![]),
        "time.add_date" => anything()
            .into_iter()
            .chain(["[0,\"America/New_York\"]".to_owned()])
            .map(|time| vec![time, "1".to_owned(), "9223372036854775807".to_owned(), "1".to_owned()])
            .chain([["0", "1", "1", "1"].map(str::to_owned).to_vec()])
            .collect(),
        "time.parse_ns" => two(
            ["\"2006-01-02\"", "\"2006-01-02\""],
            vec![
                [long("2006", MIB - 100), long("2006", MIB - 100)],
                [long(" ", MIB - 100), long(" ", MIB - 100)],
                [long("x", MIB - 100), long("x", MIB - 100)],
                [long("05,0", MIB / 4), long("05", MIB / 4)],
            ],
        ),
        "time.parse_rfc3339_ns" => one(vec![quoted(&format!("2006-01-02T15:04:05.{}Z", "9".repeat(MIB)))]),
        "time.parse_duration_ns" => one(vec![
            long("1h", MIB),
            long("1d", MIB),
            long("1y2d", MIB),
            quoted(&format!("{}d", "9".repeat(300)).repeat(3_000)),
            quoted(&format!("0.{}s", "9".repeat(MIB))),
            long("µ", MIB),
        ]),
        "internal.print" => vec![
            vec![array((0..20).map(|_| set((0..100).map(|n| n.to_string()))))],
            vec![array((0..200_000).map(|n| n.to_string()))],
            vec![array((0..5).map(|_| set((0..200).map(|n| quoted(&format!("{n}{}", "x".repeat(1_000)))))))],
            vec![array([set([array(vec!["1".to_owned(); 200_000])])])],
        ],
        "trace" => one(vec![]),
        "opa.runtime" | "time.now_ns" => vec![vec![]],
        _ => vec![],
    }
}
