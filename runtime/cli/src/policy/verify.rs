//! `qosm policy verify`: whether an artefact may be believed, and why.

use qosm_registry::{Trusted, Verification};

use super::shelf;
use crate::args::{Output, VerifyArgs};
use crate::print::Usage;
use crate::{Answer, client, print};

pub(crate) fn run(args: &VerifyArgs) -> anyhow::Result<Answer> {
    let location = shelf::location(&args.artifact)?;
    let library = shelf::library(&args.registry, &[&location])?;
    let also = shelf::trust(&args.keys)?;
    if also.is_none() && library.settings().verification.rules.is_empty() {
        return Err(Usage(
            "nobody is trusted yet: name a key with --key, or rules under `verification` in registries.yaml".to_owned(),
        )
        .into());
    }
    let verification = client::block_on(async { Ok(library.verify(&location, also.as_ref()).await?) })?;
    if args.output.output == Output::Json {
        print::json(&verification)?;
    } else {
        print::text(&text(&location.to_string(), &verification))?;
    }
    Ok(if verification.trusted.is_some() { Answer::Good } else { Answer::Bad })
}

/// One line a signature.
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
