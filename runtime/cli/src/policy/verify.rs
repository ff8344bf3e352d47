//! `qosm policy verify`: whether an artefact is trusted, and why.

use qosm_registry::{Trusted, Verification};
use qosm_terminal::{Answer, Usage, block_on, print};

use crate::args::{Output, VerifyArgs};

pub(crate) fn run(args: &VerifyArgs) -> anyhow::Result<Answer> {
    let location = qosm_open_module::location(&args.artifact)?;
    let store = qosm_open_module::store(&args.registry, &[&location])?;
    let also = qosm_open_module::trust(&args.keys)?;
    if also.is_none() && store.settings().verification.rules.is_empty() {
        return Err(Usage(
            "no key is trusted yet: name a key with --key, or rules under `verification` in registries.yaml".to_owned(),
        )
        .into());
    }
    let verification = block_on(async { Ok(store.verify(&location, also.as_ref()).await?) })?;
    if args.output.output == Output::Json {
        print::json(&verification)?;
    } else {
        print::text(&text(&location.to_string(), &verification))?;
    }
    Ok(if verification.trusted.is_some() { Answer::Good } else { Answer::Bad })
}

/// The result as text, with one line for each signature.
pub(crate) fn text(location: &str, verification: &Verification) -> String {
    let mut text = format!("{location}\n  digest    {}\n", verification.digest);
    match (&verification.trusted, &verification.refused) {
        (Some(trusted), _) => {
            text.push_str(&format!("  trusted   {trusted}\n"));
            if let Trusted::Signed(signatures) = trusted {
                for good in signatures {
                    let said: Vec<_> = good.annotations.iter().map(|(key, value)| format!("{key}={value}")).collect();
                    let said = if said.is_empty() { String::new() } else { format!("; says {}", said.join(", ")) };
                    text.push_str(&format!("  counts    {} (key {}){said}\n", good.key, &good.fingerprint));
                }
            }
        }
        (None, refused) => {
            text.push_str(&format!("  refused   {}\n", refused.as_deref().unwrap_or("nothing vouches for it")));
        }
    }
    for rejected in &verification.rejected {
        text.push_str(&format!("  rejected  {}: {}\n", rejected.origin, rejected.why));
    }
    text
}
