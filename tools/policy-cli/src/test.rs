//! `qosm policy test`: runs the tests of a policy's own code, and plays its cases to the module.

use std::path::{Path, PathBuf};

use anyhow::Context;
use qosm_build::BuildError;
use qosm_cases::{Script, Wasm, scripts};
use qosm_engine::Engine;
use qosm_sdk::testing::CaseError;
use qosm_terminal::{Answer, Output, Usage, print};
use serde_json::{Value, json};

use crate::args::TestArgs;
use crate::deliverable::Schemas;
use crate::subject::Subject;

/// A case and its result.
struct Played {
    script: Script,
    result: Result<(), CaseError>,
}

pub(crate) fn run(args: &TestArgs) -> anyhow::Result<Answer> {
    let subject = Subject::open(&args.subject)?;
    let filter = args.filter.as_deref();
    let folder = cases(&subject, args.cases.as_deref())?;
    let own_code = match &subject.project {
        Some(project) => match project.test(filter) {
            Ok(()) => Ok(()),
            // The test runner has printed the failures; play the cases too, since they may show the cause.
            Err(error @ BuildError::Failed { .. }) => Err(error),
            Err(error) => return Err(error.into()),
        },
        None => Ok(()),
    };
    let engine = Engine::new()?;
    let (module, description) = subject.load(&engine)?;
    let scripts = scripts(&folder).with_context(|| format!("there are no cases in {}", folder.display()))?;
    let there_are = scripts.len();
    let schemas = Schemas::of(&description);
    let is_meant = |script: &Script| filter.is_none_or(|filter| script.name().contains(filter));
    let played: Vec<Played> = scripts
        .into_iter()
        .filter(is_meant)
        .map(|script| {
            let result = schemas.play(&script, &mut Wasm::start(&engine, &module, &description.name));
            Played { script, result }
        })
        .collect();
    let title = format!("cases of {} {} ({})", description.name, description.version, subject.place);
    match args.output.output {
        Output::Json => print::json(&document(&subject.place, &played, own_code.as_ref().err()))?,
        Output::Table => print::text(&text(&title, &folder, &played, there_are))?,
    }
    if let Err(error) = &own_code {
        eprintln!("error: {error}");
    }
    // A filter may name tests of the project's own code alone, whose number only their runner knows.
    let has_tests = !played.is_empty() || (there_are > 0 && subject.project.is_some());
    let holds = own_code.is_ok() && has_tests && played.iter().all(|played| played.result.is_ok());
    Ok(if holds { Answer::Good } else { Answer::Bad })
}

/// The folder that contains a subject's cases.
pub(super) fn cases(subject: &Subject, said: Option<&Path>) -> Result<PathBuf, Usage> {
    match (said, &subject.project) {
        (Some(folder), _) => Ok(folder.to_path_buf()),
        (None, Some(project)) => Ok(project.cases()),
        (None, None) => Err(Usage(format!("{} is a module: name the folder of its cases with --cases", subject.place))),
    }
}

fn document(place: &str, played: &[Played], own_code: Option<&BuildError>) -> Value {
    let case = |played: &Played| {
        json!({
            "case": played.script.name(),
            "file": played.script.path,
            "holds": played.result.is_ok(),
            "error": played.result.as_ref().err().map(ToString::to_string),
        })
    };
    json!({
        "file": place,
        "ownTests": own_code.map(ToString::to_string),
        "cases": played.iter().map(case).collect::<Vec<_>>(),
    })
}

fn text(title: &str, folder: &Path, played: &[Played], there_are: usize) -> String {
    let mut text = format!("{title}\n");
    for Played { script, result } in played {
        let about = script.case.as_ref().map(|case| format!(": {}", case.about)).unwrap_or_default();
        match result {
            Ok(()) => text.push_str(&format!("  ok      {}{about}\n", script.name())),
            Err(error) => {
                text.push_str(&format!("  FAILED  {}{about}\n", script.name()));
                // The lines of a difference are already indented.
                text.push_str(&format!("          {}\n", error.to_string().replace('\n', "\n        ")));
            }
        }
    }
    let failed = played.iter().filter(|played| played.result.is_err()).count();
    let left_out = match there_are - played.len() {
        0 => String::new(),
        number => format!(", {number} left out"),
    };
    if there_are == 0 {
        text.push_str(&format!(
            "  there is no *.yaml or *.yml in {}: a policy without cases is tested on nobody's node\n",
            folder.display()
        ));
    } else {
        text.push_str(&format!("{} cases: {} hold, {failed} do not{left_out}\n", played.len(), played.len() - failed));
    }
    text
}
