//! `qosm resctrl emulate`: an emulation that stays until it is interrupted.

use std::io::BufRead as _;
use std::sync::mpsc;

use qosm_emulated_resctrl::Clock;

use super::console::Order;
use super::{Emulation, profile};
use crate::args::EmulateArgs;
use crate::{Answer, interrupt, print};

/// What it waits for.
enum Heard {
    Line(String),
    End,
}

pub(crate) fn run(args: &EmulateArgs) -> anyhow::Result<Answer> {
    let (hear, heard) = mpsc::channel();
    let end = hear.clone();
    // Before it is mounted: whoever interrupts from now on has it unmounted.
    interrupt::listen(move || drop(end.send(Heard::End)))?;
    let clock = if args.stepped { Clock::Stepped } else { Clock::Real };
    let emulation = Emulation::mount(&args.path, profile(&args.profile.profile)?, clock)?;
    let path = emulation.path().display();
    print::text(&format!(
        "An emulated resctrl ({}) is mounted at {path}, until Ctrl-C. In another terminal:\n  cat {path}/schemata\n  \
         qosm doctor --resctrl {path}\n  qosm agent --resctrl {path} --policy llc-mba --pods PODS\n",
        args.profile.profile
    ))?;
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if hear.send(Heard::Line(line)).is_err() {
                return;
            }
        }
        // What it was told last holds until it is interrupted.
    });
    while let Ok(Heard::Line(line)) = heard.recv() {
        let told = match Order::parse(&line) {
            Ok(None) => continue,
            Ok(Some(order)) => emulation.tree().map_or(Ok(()), |mut tree| order.obey(&mut tree, clock)),
            Err(error) => Err(error.to_string()),
        };
        if let Err(why) = told {
            eprintln!("{why}");
        }
    }
    emulation.end()?;
    Ok(Answer::Good)
}
