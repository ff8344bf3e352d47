//! Handles FUSE requests with a tree.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use fuser::{
    BsdFileFlags, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenAccMode,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::io::Errno;

use crate::mount::{Clock, SharedTree, lock};
use crate::tasks::Tid;
use crate::tree::{Node, Tree, Writer};

/// Lifetime of cached names and attributes: the kernel must not cache them, since they may change without a request.
const NOTHING_KEPT: Duration = Duration::ZERO;

/// The FUSE server for one tree.
pub(crate) struct Server {
    tree: SharedTree,
    clock: Clock,
    now: Mutex<Instant>,
    open: Mutex<Open>,
    since: SystemTime,
}

/// Open files and directories.
#[derive(Default)]
struct Open {
    next: u64,
    files: BTreeMap<u64, Option<Vec<u8>>>,
    directories: BTreeMap<u64, Vec<(String, Node)>>,
}

impl Server {
    pub(crate) fn new(tree: SharedTree, clock: Clock) -> Self {
        Self { tree, clock, now: Mutex::new(Instant::now()), open: Mutex::default(), since: SystemTime::now() }
    }

    /// Locks the tree, and advances its clock first if it follows real time.
    fn tree(&self) -> MutexGuard<'_, Tree> {
        let mut tree = lock(&self.tree);
        if self.clock == Clock::Real {
            let mut before = self.now.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            tree.advance(now.duration_since(*before));
            *before = now;
        }
        tree
    }

    fn open_files(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attributes(&self, tree: &Tree, node: Node) -> FileAttr {
        let attributes = tree.node_attributes(node);
        FileAttr {
            ino: INodeNo(node.inode()),
            size: 0,
            blocks: 0,
            atime: self.since,
            mtime: self.since,
            ctime: self.since,
            crtime: self.since,
            kind: kind(node),
            perm: attributes.mode,
            nlink: if attributes.is_directory { 2 } else { 1 },
            uid: attributes.uid,
            gid: attributes.gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn begin_reading(&self, node: Node, access: OpenAccMode) -> Result<u64, Errno> {
        let tree = lock(&self.tree);
        tree.live(node)?;
        // Root passes permission checks on files without write permission, but the open is refused nevertheless
        // (`KERNFS_ROOT_EXTRA_OPEN_PERM_CHECK`).
        let mode = tree.node_attributes(node).mode;
        let (reads, writes) = (access != OpenAccMode::O_WRONLY, access != OpenAccMode::O_RDONLY);
        if reads && mode & 0o444 == 0 || writes && (mode & 0o222 == 0 || !node.is_writable()) {
            return Err(Errno::INVAL);
        }
        let mut open = self.open_files();
        open.next += 1;
        let handle = open.next;
        open.files.insert(handle, None);
        Ok(handle)
    }

    /// The text from an offset. The text is created at offset 0, and later reads continue in the same text, like `seq_file`.
    fn text(&self, node: Node, handle: u64, from: u64) -> Result<Vec<u8>, Errno> {
        let shown = if from == 0 { None } else { self.open_files().files.get(&handle).cloned().flatten() };
        let text = match shown {
            Some(text) => text,
            None => {
                let text = self.tree().read_node(node)?;
                self.open_files().files.insert(handle, Some(text.clone()));
                text
            }
        };
        Ok(usize::try_from(from).ok().and_then(|from| text.get(from..)).unwrap_or_default().to_vec())
    }
}

fn kind(node: Node) -> FileType {
    if node.is_directory() { FileType::Directory } else { FileType::RegularFile }
}

fn node(inode: INodeNo) -> Result<Node, Errno> {
    Node::from_inode(inode.0).ok_or(Errno::NOENT)
}

fn writer(request: &Request) -> Writer {
    Writer { tid: Tid(request.pid()), uid: request.uid(), gid: request.gid() }
}

fn errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw_os_error())
}

/// Names must be UTF-8.
fn utf8(name: &OsStr) -> Result<&str, Errno> {
    name.to_str().ok_or(Errno::INVAL)
}

impl Filesystem for Server {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let tree = lock(&self.tree);
        let found = node(parent).and_then(|parent| {
            tree.live(parent)?;
            tree.lookup(parent, name.to_str().ok_or(Errno::NOENT)?)
        });
        match found {
            Ok(found) => reply.entry(&NOTHING_KEPT, &self.attributes(&tree, found), Generation(0)),
            Err(refused) => reply.error(errno(refused)),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let tree = lock(&self.tree);
        match node(inode).and_then(|node| if tree.exists(node) { Ok(node) } else { Err(Errno::NOENT) }) {
            Ok(node) => reply.attr(&NOTHING_KEPT, &self.attributes(&tree, node)),
            Err(refused) => reply.error(errno(refused)),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        _size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // Every `echo >` sets a size, which has no effect here.
        let mut tree = lock(&self.tree);
        match node(inode).and_then(|node| tree.live(node).map(|()| node)) {
            Ok(node) => {
                let mode = mode.and_then(|mode| u16::try_from(mode & 0o7777).ok());
                tree.set_node_attributes(node, mode, uid, gid);
                reply.attr(&NOTHING_KEPT, &self.attributes(&tree, node));
            }
            Err(refused) => reply.error(errno(refused)),
        }
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        let mut tree = self.tree();
        let made = node(parent).and_then(|parent| tree.make(parent, utf8(name)?, writer(request)));
        match made {
            Ok(made) => reply.entry(&NOTHING_KEPT, &self.attributes(&tree, made), Generation(0)),
            Err(refused) => reply.error(errno(refused)),
        }
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut tree = self.tree();
        let removed = node(parent).and_then(|parent| {
            let removed = tree.lookup(parent, utf8(name)?)?;
            tree.remove(removed)
        });
        done(removed, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut tree = self.tree();
        let renamed = node(parent).and_then(|parent| {
            if !flags.is_empty() {
                return Err(Errno::INVAL);
            }
            let renamed = tree.lookup(parent, utf8(name)?)?;
            tree.rename_node(renamed, node(new_parent)?, utf8(new_name)?)
        });
        done(renamed, reply);
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match node(inode).and_then(|node| self.begin_reading(node, flags.acc_mode())) {
            // `close` must not notify the server: a process that starts a program while a file is open waits for the
            // answer, holding a lock that reading its `stat` needs, and the tree reads that before it answers.
            Ok(handle) => {
                reply.opened(FileHandle(handle), FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH);
            }
            Err(refused) => reply.error(errno(refused)),
        }
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match node(inode).and_then(|node| self.text(node, handle.0, offset)) {
            Ok(mut text) => {
                text.truncate(usize::try_from(size).unwrap_or(usize::MAX));
                reply.data(&text);
            }
            Err(refused) => reply.error(errno(refused)),
        }
    }

    fn write(
        &self,
        request: &Request,
        inode: INodeNo,
        _: FileHandle,
        _offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match node(inode).and_then(|node| self.tree().write_node(node, data, writer(request))) {
            Ok(written) => reply.written(u32::try_from(written).unwrap_or(u32::MAX)),
            Err(refused) => reply.error(errno(refused)),
        }
    }

    /// Only called by kernels that do not know `FOPEN_NOFLUSH`, and no more after this answer.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.open_files().files.remove(&handle.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let tree = lock(&self.tree);
        match node(inode).and_then(|node| tree.live(node).map(|()| tree.children(node))) {
            Ok(children) => {
                let mut open = self.open_files();
                open.next += 1;
                let handle = open.next;
                open.directories.insert(handle, children);
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(refused) => reply.error(errno(refused)),
        }
    }

    fn readdir(&self, _: &Request, inode: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if offset == 0 {
            // A rewound handle reads the current content.
            let tree = lock(&self.tree);
            if let Ok(children) = node(inode).map(|node| tree.children(node)) {
                self.open_files().directories.insert(handle.0, children);
            }
        }
        let open = self.open_files();
        let children = open.directories.get(&handle.0).map_or(&[][..], Vec::as_slice);
        let dots = [(".", inode.0, FileType::Directory), ("..", inode.0, FileType::Directory)];
        let names = children.iter().map(|(name, node)| (name.as_str(), node.inode(), kind(*node)));
        let entries = (1u64..).zip(dots.into_iter().chain(names));
        for (next, (name, inode, kind)) in entries.skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
            if reply.add(INodeNo(inode), next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.open_files().directories.remove(&handle.0);
        reply.ok();
    }

    // kernfs has none of these operations; these are the kernel's errors.

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(fuser::Errno::EPERM);
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(fuser::Errno::EPERM);
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(fuser::Errno::EPERM);
    }

    fn create(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        reply.error(fuser::Errno::EACCES);
    }
}

fn done(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(refused) => reply.error(errno(refused)),
    }
}
