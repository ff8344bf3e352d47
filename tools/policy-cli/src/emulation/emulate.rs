//! `qosm resctrl emulate`: an emulation that runs until it is interrupted.

use std::io::BufRead as _;
use std::sync::mpsc;

use qosm_resctrl_fuse::Clock;
use qosm_terminal::{Answer, interrupt, print};

use super::console::Order;
use super::{Emulation, profile};
use crate::args::EmulateArgs;

/// Events of the main loop.
enum Heard {
    Line(String),
    End,
}

pub(crate) fn run(args: &EmulateArgs) -> anyhow::Result<Answer> {
    let (hear, heard) = mpsc::channel();
    let end = hear.clone();
    // Register the handler before mounting: from here on an interrupt unmounts it.
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
        // After the end of standard input the last values stay in force until an interrupt.
    });
    while let Ok(Heard::Line(line)) = heard.recv() {
        let result = match Order::parse(&line) {
            Ok(None) => continue,
            Ok(Some(order)) => emulation.tree().map_or(Ok(()), |mut tree| order.obey(&mut tree, clock)),
            Err(error) => Err(error.to_string()),
        };
        if let Err(why) = result {
            eprintln!("{why}");
        }
    }
    emulation.end()?;
    Ok(Answer::Good)
}
