//! `qosm top`: shows a node moment by moment, live or from a recording.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use qosm_agent::report::NodeUsage;
use qosm_terminal::{Answer, Usage, print};
use qosm_watch::moment::{Moment, Row};
use qosm_watch::screen::{After, Screen};
use qosm_watch::table::{self, Filter, Order};
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use crate::args::{Output, TopArgs};
use crate::client;
use crate::played::Played;

/// How far back the screen of a running agent goes.
const PAST: Duration = Duration::from_secs(300);
/// Maximum number of moments that are kept of a recording, the last ones: with 100 containers, some hundred megabytes.
const MOST_RECORDED: usize = 5_000;
/// Longest delay between a key and its effect.
const KEY_DELAY: Duration = Duration::from_millis(50);

pub(crate) fn run(args: &TopArgs) -> anyhow::Result<Answer> {
    let filter = Filter {
        namespace: args.namespace.clone(),
        name: args.find.clone().unwrap_or_default(),
        policy: args.policy_held.clone(),
    };
    let is_once = args.once || args.output.output == Output::Json || !std::io::stdout().is_terminal();
    if is_once {
        let moment = match &args.replay {
            Some(path) => last_of(path, args)?,
            None => next_of(&args.socket.admin_socket, args.interval.unsigned_abs())?,
        };
        return print_once(&moment, &filter, args.sort, args.output.output);
    }
    let (title, most) = match &args.replay {
        Some(path) => (path.display().to_string(), MOST_RECORDED),
        None => (
            args.title.clone().unwrap_or_else(|| "qosm top".to_owned()),
            moments_within(PAST, args.interval.unsigned_abs()),
        ),
    };
    let mut screen = Screen::new(title, filter, args.sort, most);
    let moments = source(args)?;
    show(&mut screen, &moments)?;
    Ok(Answer::Good)
}

fn moments_within(time: Duration, interval: Duration) -> usize {
    usize::try_from(time.as_millis() / interval.as_millis().max(1)).unwrap_or(usize::MAX).max(2)
}

/// Messages to the screen: a moment, or why there is none.
type News = Result<Moment, String>;

/// Queries the agent or plays the recording, on a separate thread.
#[expect(clippy::disallowed_methods, reason = "keys are answered while an agent is asked or a recording is played")]
fn source(args: &TopArgs) -> anyhow::Result<Receiver<News>> {
    let (news, receiver) = sync_channel(1);
    match &args.replay {
        Some(path) => {
            let played = Played::open(path, &args.modules)?;
            std::thread::spawn(move || {
                let outcome = played.each(|moment, _| news.send(Ok(moment)).is_ok());
                let end = outcome.map_or_else(|error| format!("{error:#}"), |()| "the recording ends here".to_owned());
                news.send(Err(end)).ok();
            });
        }
        None => {
            let (socket, interval) = (args.socket.admin_socket.clone(), args.interval.unsigned_abs());
            // A missing agent at the start is an error of the command.
            let first: NodeUsage = usage(&socket)?;
            std::thread::spawn(move || ask(&socket, interval, first, &news));
        }
    }
    Ok(receiver)
}

fn usage(socket: &Path) -> anyhow::Result<NodeUsage> {
    client::get(socket, "/v1/usage")
}

/// Queries a running agent forever; an agent that has ended may come back.
fn ask(socket: &Path, interval: Duration, mut before: NodeUsage, news: &SyncSender<News>) {
    loop {
        std::thread::sleep(interval);
        let next = usage(socket).map(|now| {
            // The clock of a new agent starts again.
            let moment = (now.at_usec > before.at_usec).then(|| Moment::between(&before, &now));
            before = now;
            moment
        });
        let told = match next {
            Ok(None) => continue,
            Ok(Some(moment)) => news.send(Ok(moment)),
            Err(error) => news.send(Err(format!("{error:#}"))),
        };
        if told.is_err() {
            return;
        }
    }
}

/// Draws moments until a key ends the command.
fn show(screen: &mut Screen, moments: &Receiver<News>) -> anyhow::Result<()> {
    let mut terminal = ratatui::try_init().context("this terminal cannot be drawn on; `--once` prints one look")?;
    let shown = draw(&mut terminal, screen, moments);
    ratatui::restore();
    shown
}

fn draw(terminal: &mut ratatui::DefaultTerminal, screen: &mut Screen, moments: &Receiver<News>) -> anyhow::Result<()> {
    let mut is_new = true;
    loop {
        // A recording delivers many moments at once.
        let until = Instant::now() + KEY_DELAY;
        while Instant::now() < until
            && let Ok(news) = moments.try_recv()
        {
            is_new = true;
            match news {
                Ok(moment) => screen.take(moment),
                Err(why) => screen.trouble(why),
            }
        }
        if std::mem::take(&mut is_new) {
            terminal.draw(|frame| screen.draw(frame))?;
        }
        if !event::poll(KEY_DELAY)? {
            continue;
        }
        is_new = true;
        if let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
            && screen.press(key) == After::Quit
        {
            return Ok(());
        }
    }
}

/// The last moment of a recording.
fn last_of(path: &Path, args: &TopArgs) -> anyhow::Result<Moment> {
    let mut last = None;
    Played::open(path, &args.modules)?.each(|moment, _| {
        last = Some(moment);
        true
    })?;
    last.ok_or_else(|| Usage(format!("{}: no tick is in it", path.display())).into())
}

/// The moment of a running agent from now until `interval` has passed.
fn next_of(socket: &Path, interval: Duration) -> anyhow::Result<Moment> {
    let before = usage(socket)?;
    std::thread::sleep(interval);
    Ok(Moment::between(&before, &usage(socket)?))
}

/// Error message if no container matches the filter, with the nearest name.
fn none_like(moment: &Moment, filter: &Filter) -> String {
    let nearest = moment.containers.iter().map(Row::name).max_by(|one, other| {
        strsim::jaro_winkler(one, &filter.name).total_cmp(&strsim::jaro_winkler(other, &filter.name))
    });
    match nearest {
        None => "no container runs on this node".to_owned(),
        Some(nearest) if filter.name.is_empty() => format!("no container is like that; there is {nearest}"),
        Some(nearest) => format!("no container has `{}` in its name; the nearest is {nearest}", filter.name),
    }
}

fn print_once(moment: &Moment, filter: &Filter, order: Order, output: Output) -> anyhow::Result<Answer> {
    let rows = table::rows(moment, filter, order);
    if output == Output::Json {
        let containers = rows.into_iter().cloned().collect();
        print::json(&Moment { containers, ..moment.clone() })?;
        return Ok(Answer::Good);
    }
    if rows.is_empty() {
        bail!(none_like(moment, filter));
    }
    // Without a terminal, lines may have any length.
    let width = print::width().unwrap_or(u16::MAX);
    print::text(&table::text(&rows, width))?;
    Ok(Answer::Good)
}
