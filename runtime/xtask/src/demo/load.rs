//! A steady load of visitors that do not wait for each other.
//!
//! The tools that Debian packages do not fit: `wrk`, `ab` and `siege` send the next request after the previous answer, so a throttled
//! server gets fewer requests and looks better than it is; `httperf` keeps its rate but reports no percentiles. Here each request has a
//! scheduled time, drawn once and the same in every phase of a round. Its latency counts from that time, however late it is sent.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// More than the number of requests that ever wait at once, even if the server stalls for some seconds.
const CONNECTIONS: usize = 96;
/// Time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The result of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// Latency from the scheduled time; `None` if the request failed.
    pub(crate) took: Option<Duration>,
}

/// The running load; ends when dropped.
#[derive(Debug)]
pub(crate) struct Load {
    answers: Receiver<Answer>,
    stop: Arc<AtomicBool>,
    connections: Vec<JoinHandle<()>>,
}

impl Load {
    /// Begins to send a request at each of these times from now.
    pub(crate) fn start(server: SocketAddr, moments: Vec<Duration>) -> Self {
        let (sender, answers) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let next = Arc::new(AtomicUsize::new(0));
        let moments = Arc::new(moments);
        let start = Instant::now();
        let connection = |_| {
            let (sender, stop, next, moments) = (sender.clone(), stop.clone(), next.clone(), moments.clone());
            thread::spawn(move || {
                let mut connection = None;
                while let Some(&moment) = moments.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let due = start + moment;
                    loop {
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                        let left = due.saturating_duration_since(Instant::now());
                        if left.is_zero() {
                            break;
                        }
                        thread::sleep(left.min(Duration::from_millis(100)));
                    }
                    let answered = request(&mut connection, server);
                    if answered.is_err() {
                        connection = None;
                    }
                    if sender.send(Answer { took: answered.ok().map(|()| due.elapsed()) }).is_err() {
                        return;
                    }
                }
            })
        };
        Self { answers, connections: (0..CONNECTIONS).map(connection).collect(), stop }
    }

    /// The results since the last call.
    pub(crate) fn answers(&self) -> Vec<Answer> {
        self.answers.try_iter().collect()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for connection in self.connections.drain(..) {
            // A thread that panicked has nothing left to end.
            let _ = connection.join();
        }
    }
}

/// Arrival times: independent of each other, on average `rate` a second, and always the same for the same rate and round. Rounds differ:
/// a high percentile depends on how often visitors come at once, and the same visitors again would say nothing new about that.
pub(crate) fn moments(rate: f64, length: Duration, round: usize) -> Vec<Duration> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64 ^ (round as u64).rotate_right(24);
    let mut uniform = move || {
        // SplitMix64 (Steele, Lea, Flood 2014): sufficient for some thousand gaps, and the same on every machine.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        (mixed >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut moment = 0.0;
    let mut moments = Vec::new();
    loop {
        moment -= (1.0 - uniform()).ln() / rate;
        if moment >= length.as_secs_f64() {
            return moments;
        }
        moments.push(Duration::from_secs_f64(moment));
    }
}

/// Sends a GET over a persistent connection, and reads the whole answer.
///
/// # Errors
///
/// If the server is not there, does not answer in time, or answers with another status than 200.
pub(crate) fn request(connection: &mut Option<BufReader<TcpStream>>, server: SocketAddr) -> Result<()> {
    let stream = match connection {
        Some(stream) => stream,
        None => {
            let stream = TcpStream::connect_timeout(&server, PATIENCE).context("the server does not listen")?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            connection.insert(BufReader::new(stream))
        }
    };
    let request = "GET /page.html HTTP/1.1\r\nHost: demo\r\nAccept-Encoding: gzip\r\n\r\n";
    stream.get_mut().write_all(request.as_bytes())?;
    read_answer(stream)
}

/// Reads one HTTP/1.1 answer with its body, by length or in chunks (RFC 9112, sections 6 and 7).
fn read_answer(stream: &mut impl BufRead) -> Result<()> {
    let mut line = String::new();
    let mut next_line = |stream: &mut dyn BufRead| -> Result<String> {
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            bail!("the server closed the connection");
        }
        Ok(line.trim_end().to_ascii_lowercase())
    };
    let status = next_line(stream)?;
    if !status.starts_with("http/1.1 200") {
        bail!("the server answered `{status}`");
    }
    let (mut length, mut chunked) = (None, false);
    loop {
        let header = next_line(stream)?;
        match header.split_once(':') {
            None if header.is_empty() => break,
            None => bail!("`{header}` is no header"),
            Some(("content-length", value)) => length = Some(value.trim().parse().context("content-length")?),
            Some(("transfer-encoding", value)) => chunked = value.trim() == "chunked",
            Some(_) => {}
        }
    }
    if chunked {
        loop {
            let size = next_line(stream)?;
            let size = size.split(';').next().unwrap_or_default();
            let size = u64::from_str_radix(size, 16).with_context(|| format!("`{size}` is no chunk's size"))?;
            skip(stream, size)?;
            next_line(stream)?;
            if size == 0 {
                return Ok(());
            }
        }
    }
    skip(stream, length.context("the answer has neither a length nor chunks")?)
}

fn skip(stream: &mut impl Read, length: u64) -> Result<()> {
    let read = std::io::copy(&mut stream.take(length), &mut std::io::sink())?;
    anyhow::ensure!(read == length, "the answer ended {} bytes early", length - read);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visitors_come_at_the_asked_rate_and_always_alike() {
        let moments = moments(24.0, Duration::from_secs(1000), 0);
        assert!((23_000..25_000).contains(&moments.len()), "{}", moments.len());
        assert!(moments.is_sorted());
        assert_eq!(moments, super::moments(24.0, Duration::from_secs(1000), 0));
        let other = super::moments(24.0, Duration::from_secs(1000), 1);
        let alike = moments.iter().filter(|moment| other.contains(moment)).count();
        assert_eq!(alike, 0, "visitors of another round come at other moments");
        // For independent arrivals, the standard deviation of the gaps is equal to their mean.
        let gaps: Vec<f64> = moments.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let spread = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        assert!((0.9..1.1).contains(&(spread / mean)), "{spread} {mean}");
    }

    #[test]
    fn both_kinds_of_body_are_read_to_their_end() {
        let two = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\n\r\n\
                    HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        let mut stream = &two[..];
        read_answer(&mut stream).unwrap();
        read_answer(&mut stream).unwrap();
        assert!(stream.is_empty());
    }

    #[test]
    fn a_broken_answer_is_an_error() {
        for answer in [
            "",
            "HTTP/1.1 503 Busy\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        ] {
            assert!(read_answer(&mut answer.as_bytes()).is_err(), "{answer:?}");
        }
    }
}
