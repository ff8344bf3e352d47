//! The files that are mapped into this process: its program, the loader that the program names, and its libraries.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The files that are mapped into this process, each once: what a child that runs the same program needs to start.
///
/// # Errors
///
/// When `/proc/self/maps` cannot be read.
#[expect(clippy::disallowed_methods, reason = "proc tells what is mapped")]
pub fn loaded_files() -> std::io::Result<Vec<PathBuf>> {
    Ok(parse(&std::fs::read_to_string("/proc/self/maps")?))
}

fn parse(maps: &str) -> Vec<PathBuf> {
    // Address, rights, offset, device and inode stand before the name, which may have spaces in it.
    let name = |line: &str| line.find('/').map(|at| line[at..].trim_end_matches(" (deleted)").to_owned());
    let names: BTreeSet<String> = maps.lines().filter_map(name).collect();
    names.into_iter().map(|name| Path::new(&name).to_path_buf()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_files_are_told_once_each() {
        let maps = "5570-5571 r--p 00000000 fd:01 12 /usr/bin/qo sm\n5571-5572 r-xp 00001000 fd:01 12 /usr/bin/qo sm\n\
                    7f00-7f01 rw-p 00000000 00:00 0 \n7f01-7f02 r-xp 00000000 fd:01 13 /lib64/ld.so (deleted)\n\
                    7ffc-7ffd rw-p 00000000 00:00 0 [stack]\n";
        assert_eq!(parse(maps), [PathBuf::from("/lib64/ld.so"), PathBuf::from("/usr/bin/qo sm")]);
    }

    #[test]
    fn this_program_is_among_its_own_files() {
        let program = std::env::current_exe().unwrap();
        assert!(loaded_files().unwrap().contains(&program), "{}", program.display());
    }
}
