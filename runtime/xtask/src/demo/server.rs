//! The server in the container: Apache, which compresses a page for each visitor.

use std::fs;
use std::io::BufReader;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::command;
use crate::demo::cgroup::Container;
use crate::demo::load;
use crate::interrupt::Interrupt;
use crate::workspace;

/// CPU time that a page should cost: 30 % of the container's quota, so that three concurrent visitors fit into a period and four do not.
const COST: Duration = Duration::from_millis(12);

/// A running Apache; ends when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    folder: TempDir,
    process: Child,
}

impl Server {
    /// Starts Apache inside the container's cgroups and waits until it answers.
    ///
    /// # Errors
    ///
    /// If it is not installed or does not start; the error includes its log.
    pub(crate) fn start(container: &Container<'_>, interrupt: &Interrupt) -> Result<Self> {
        let apache = workspace::program("apache2").context("apache2 is not installed: run `make setup`")?;
        let folder = tempfile::tempdir().context("no folder for the server")?;
        // The workers drop root and still have to read the page.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).context("the server's folder")?;
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.local_addr());
        let address = free.context("no free port for the server")?;
        write_page(folder.path(), 512 * 1024)?;
        let configuration = folder.path().join("apache.conf");
        fs::write(&configuration, configure(folder.path(), address)).context("the server's configuration")?;

        // The shell moves itself into the cgroups before it executes the server, so that the server never runs outside.
        let enter = "for procs in $PROCS; do echo $$ >\"$procs\" || exit 1; done; exec \"$@\"";
        let procs: Vec<_> = container.procs().iter().map(|file| file.display().to_string()).collect();
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", enter, "sh"]).arg(apache).args(["-D", "FOREGROUND", "-f"]).arg(&configuration);
        shell.env("PROCS", procs.join(" ")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // A process group of its own: Ctrl-C reaches only the demo, which then stops the server.
        let process = shell.process_group(0).spawn().context("the server cannot be started")?;
        let mut server = Self { address, folder, process };
        let deadline = Instant::now() + Duration::from_secs(15);
        while load::request(&mut None, address).is_err() {
            let ended = server.process.try_wait().context("the server cannot be waited for")?;
            if ended.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(server.folder.path().join("error.log")).unwrap_or_default();
                bail!("Apache does not answer on {address}: {}", log.lines().last().unwrap_or("its log is empty"));
            }
            interrupt.sleep(Duration::from_millis(50))?;
        }
        Ok(server)
    }

    /// The address on which it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adjusts the size of the page until it costs the intended CPU time on this machine. Returns the actual cost.
    ///
    /// # Errors
    ///
    /// When a request fails or the counters cannot be read.
    pub(crate) fn calibrate(&self, container: &Container<'_>) -> Result<Duration> {
        let mut connection = None;
        let mut size = 512 * 1024_u32;
        let mut cost = self.cost(&mut connection, container)?;
        // The cost grows with the size but not in proportion, so a second, smaller correction follows.
        for _ in 0..2 {
            let scaled = u128::from(size) * COST.as_micros() / cost.as_micros().max(1);
            size = u32::try_from(scaled).unwrap_or(u32::MAX).clamp(8 * 1024, 32 * 1024 * 1024);
            write_page(self.folder.path(), size)?;
            cost = self.cost(&mut connection, container)?;
        }
        Ok(cost)
    }

    /// CPU time of a page, by the container's counter.
    fn cost(&self, connection: &mut Option<BufReader<TcpStream>>, container: &Container<'_>) -> Result<Duration> {
        let requests = 25;
        load::request(connection, self.address)?;
        let before = container.sample()?.usage;
        for _ in 0..requests {
            load::request(connection, self.address)?;
        }
        Ok((container.sample()?.usage - before) / requests)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        command::signal_group(&self.process, Signal::TERM);
        if !matches!(command::wait(&mut self.process, Duration::from_secs(3)), Ok(Some(_))) {
            command::signal_group(&self.process, Signal::KILL);
            // Removing the cgroup kills the remaining processes.
            let _ = self.process.wait();
        }
    }
}

/// Writes a page of words in pseudo-random order, about as hard to compress as prose.
pub(crate) fn write_page(folder: &Path, size: u32) -> Result<()> {
    let size = usize::try_from(size)?;
    let words = ["quota", "burst", "period", "throttled", "cgroup", "kernel", "policy", "lease", "baseline", "node"];
    let mut page = String::with_capacity(size + 16);
    let mut state = 1_u32;
    while page.len() < size {
        // Numerical Recipes' linear congruential generator; its high bits are the random ones.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let word = usize::try_from(state >> 16)?;
        page += words[word % words.len()];
        page += if word % 11 == 0 { "\n" } else { " " };
        page += &(word % 1000).to_string();
    }
    // Replace the page in one step: a worker may be reading the old one.
    let fresh = folder.join("page.new");
    fs::write(&fresh, page).context("the page cannot be written")?;
    fs::rename(&fresh, folder.join("page.html")).context("the page cannot be written")
}

fn configure(folder: &Path, address: SocketAddr) -> String {
    let modules: PathBuf = "/usr/lib/apache2/modules".into();
    let load = ["mpm_event", "authz_core", "filter", "deflate"]
        .map(|name| format!("LoadModule {name}_module {}\n", modules.join(format!("mod_{name}.so")).display()))
        .concat();
    let folder = folder.display();
    format!(
        "{load}\
         Listen {address}\nServerName demo\nUser www-data\nGroup www-data\n\
         DefaultRuntimeDir {folder}\nPidFile {folder}/apache.pid\nErrorLog {folder}/error.log\nDocumentRoot {folder}\n\
         StartServers 1\nServerLimit 1\nThreadLimit 128\nThreadsPerChild 128\nMaxRequestWorkers 128\nMinSpareThreads 1\n\
         MaxSpareThreads 128\nKeepAlive On\nMaxKeepAliveRequests 0\nKeepAliveTimeout 300\n\
         SetOutputFilter DEFLATE\nDeflateCompressionLevel 6\n\
         <Directory />\n    Require all denied\n</Directory>\n<Files page.html>\n    Require all granted\n</Files>\n"
    )
}
