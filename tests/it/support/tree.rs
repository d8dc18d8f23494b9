//! A tree of files in memory, with the rules of Linux: what the file calls are compared with.
//!
//! Nothing in it looks at a disk. Paths are lists of names below the root; texts of links are relative and go downwards.

use std::collections::{BTreeMap, VecDeque};

use exec_server::protocol::fs::{WalkEntry, WalkKind};

/// A path below the root.
pub(crate) type Names = Vec<String>;

/// Why a call fails: the `kind` of its error.
pub(crate) type Failure = &'static str;

pub(crate) type Outcome<T> = Result<T, Failure>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    File(Vec<u8>, u32),
    Directory(BTreeMap<String, Node>, u32),
    Link(String),
}

/// The tree, and the mask for the modes of what is created.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    pub(crate) root: Node,
    umask: u32,
}

/// Where a path leads: a name in a real directory, whether it is there or not.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Spot {
    parent: Names,
    name: Option<String>,
}

impl Spot {
    fn path(&self) -> Names {
        self.parent.iter().chain(&self.name).cloned().collect()
    }
}

/// What `getMetadata` says, as far as it depends on the tree.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) is_directory: bool,
    /// Of a file.
    pub(crate) size: Option<u64>,
    pub(crate) mode: u32,
    pub(crate) link_target: Option<String>,
}

const MAX_LINKS: u32 = 40;

impl Tree {
    pub(crate) fn new(mode: u32, umask: u32) -> Self {
        Self { root: Node::Directory(BTreeMap::new(), mode), umask }
    }

    fn node(&self, path: &[String]) -> Option<&Node> {
        path.iter().try_fold(&self.root, |node, name| match node {
            Node::Directory(children, _) => children.get(name),
            _ => None,
        })
    }

    fn children(&mut self, path: &[String]) -> &mut BTreeMap<String, Node> {
        let mut node = &mut self.root;
        for name in path {
            let Node::Directory(children, _) = node else { panic!("{path:?} is no directory") };
            node = children.get_mut(name).expect("it is there");
        }
        let Node::Directory(children, _) = node else { panic!("{path:?} is no directory") };
        children
    }

    fn put(&mut self, spot: &Spot, node: Node) {
        match &spot.name {
            Some(name) => drop(self.children(&spot.parent).insert(name.clone(), node)),
            None => self.root = node,
        }
    }

    fn take(&mut self, spot: &Spot) -> Node {
        let name = spot.name.as_ref().expect("the root stays");
        self.children(&spot.parent).remove(name).expect("it is there")
    }

    /// Follows a path. The last name need not be there, and is followed if it is a link and that is asked for.
    fn resolve(&self, path: &[String], follow: bool) -> Outcome<Spot> {
        let mut ahead: VecDeque<String> = path.iter().cloned().collect();
        let (mut current, mut links) = (Names::new(), 0);
        while let Some(name) = ahead.pop_front() {
            match self.node(&current) {
                Some(Node::Directory(children, _)) => match children.get(&name) {
                    Some(Node::Link(text)) if follow || !ahead.is_empty() => {
                        links += 1;
                        if links > MAX_LINKS {
                            return Err("symlinkLoop");
                        }
                        for part in text.split('/').rev() {
                            ahead.push_front(part.to_owned());
                        }
                    }
                    Some(_) => current.push(name),
                    None if ahead.is_empty() => return Ok(Spot { parent: current, name: Some(name) }),
                    None => return Err("notFound"),
                },
                _ => return Err("notDirectory"),
            }
        }
        let name = current.pop();
        Ok(Spot { parent: current, name })
    }

    /// The entry itself, in a directory to which links may lead.
    fn entry(&self, path: &[String]) -> Outcome<Spot> {
        let spot = self.resolve(path, false)?;
        match self.node(&spot.parent) {
            Some(Node::Directory(..)) => Ok(spot),
            _ => Err("notDirectory"),
        }
    }

    /// The entry itself, in a directory to which no links lead.
    fn entry_without_links(&self, path: &[String]) -> Outcome<Spot> {
        let Some((name, parent)) = path.split_last() else { return Ok(Spot { parent: vec![], name: None }) };
        for depth in 0..=parent.len() {
            match self.node(&parent[..depth]) {
                Some(Node::Directory(..)) => {}
                Some(_) => return Err("notDirectory"),
                None => return Err("notFound"),
            }
        }
        Ok(Spot { parent: parent.to_vec(), name: Some(name.clone()) })
    }

    fn existing(&self, path: &[String]) -> Outcome<(Spot, &Node)> {
        let spot = self.resolve(path, true)?;
        match self.node(&spot.path()) {
            Some(node) => Ok((spot, node)),
            None => Err("notFound"),
        }
    }

    pub(crate) fn read(&self, path: &[String], follow: bool) -> Outcome<Vec<u8>> {
        let node = if follow {
            self.existing(path)?.1
        } else {
            self.node(&self.entry_without_links(path)?.path()).ok_or("notFound")?
        };
        match node {
            Node::File(content, _) => Ok(content.clone()),
            Node::Directory(..) => Err("notRegularFile"),
            Node::Link(_) => Err("symlinkLoop"),
        }
    }

    pub(crate) fn write(&mut self, path: &[String], content: &[u8]) -> Outcome<()> {
        let spot = self.resolve(path, true)?;
        let mode = match self.node(&spot.path()) {
            Some(Node::File(_, mode)) => *mode,
            Some(_) => return Err("isDirectory"),
            None => 0o666 & !self.umask,
        };
        self.put(&spot, Node::File(content.to_vec(), mode));
        Ok(())
    }

    fn make_directory(&mut self, path: &[String]) -> Outcome<()> {
        let spot = self.entry(path)?;
        if self.node(&spot.path()).is_some() {
            return Err("alreadyExists");
        }
        self.put(&spot, Node::Directory(BTreeMap::new(), 0o777 & !self.umask));
        Ok(())
    }

    pub(crate) fn create_directory(&mut self, path: &[String], recursive: bool) -> Outcome<()> {
        let made = self.make_directory(path);
        let is_there = matches!(self.existing(path), Ok((_, Node::Directory(..))));
        match made {
            Ok(()) => Ok(()),
            Err("notFound") if recursive => {
                self.create_directory(&path[..path.len() - 1], true)?;
                self.make_directory(path)
            }
            Err(_) if recursive && is_there => Ok(()),
            failed => failed,
        }
    }

    pub(crate) fn about(&self, path: &[String], follow: bool) -> Outcome<About> {
        let (node, link_target) = if follow {
            let entry = self.resolve(path, false).ok().and_then(|spot| self.node(&spot.path()));
            let text = match entry {
                Some(Node::Link(text)) => Some(text.clone()),
                _ => None,
            };
            (self.existing(path)?.1, text)
        } else {
            (self.node(&self.entry_without_links(path)?.path()).ok_or("notFound")?, None)
        };
        match node {
            Node::File(content, mode) => {
                Ok(About { is_directory: false, size: Some(content.len() as u64), mode: *mode, link_target })
            }
            Node::Directory(_, mode) => {
                Ok(About { is_directory: true, size: None, mode: *mode, link_target })
            }
            Node::Link(_) => Err("symlinkLoop"),
        }
    }

    pub(crate) fn canonicalize(&self, path: &[String]) -> Outcome<Names> {
        Ok(self.existing(path)?.0.path())
    }

    /// Names, whether each is a directory, and the text of links if they are wanted.
    pub(crate) fn list(&self, path: &[String], links: bool) -> Outcome<Vec<(String, bool, Option<String>)>> {
        let (spot, Node::Directory(children, _)) = self.existing(path)? else { return Err("notDirectory") };
        let mut listed = Vec::new();
        for (name, child) in children {
            let below: Names = spot.path().into_iter().chain([name.clone()]).collect();
            let target = self.existing(&below).ok().map(|(_, node)| matches!(node, Node::Directory(..)));
            let text = match child {
                Node::Link(text) if links => Some(text.clone()),
                _ => None,
            };
            if target.is_some() || text.is_some() {
                listed.push((name.clone(), target == Some(true), text));
            }
        }
        Ok(listed)
    }

    /// Files and directories by levels, without what is behind links.
    pub(crate) fn walk(&self, path: &[String]) -> Outcome<Vec<(Names, WalkKind)>> {
        let spot = self.entry(path)?;
        let node = self.node(&spot.path()).ok_or("notFound")?;
        let mut found = Vec::new();
        let mut level = VecDeque::from([(Names::new(), node)]);
        while let Some((below, node)) = level.pop_front() {
            let Node::Directory(children, _) = node else { continue };
            for (name, child) in children {
                let below: Names = below.iter().cloned().chain([name.clone()]).collect();
                match child {
                    Node::File(..) => found.push((below, WalkKind::File)),
                    Node::Directory(..) => {
                        found.push((below.clone(), WalkKind::Directory));
                        level.push_back((below, child));
                    }
                    Node::Link(_) => {}
                }
            }
        }
        Ok(found)
    }

    pub(crate) fn remove(&mut self, path: &[String], recursive: bool, force: bool) -> Outcome<()> {
        let spot = self.entry(path)?;
        match self.node(&spot.path()) {
            None if force => return Ok(()),
            None => return Err("notFound"),
            Some(Node::Directory(children, _)) if !recursive && !children.is_empty() => {
                return Err("notEmpty");
            }
            Some(_) => {}
        }
        self.take(&spot);
        Ok(())
    }

    pub(crate) fn rename(&mut self, source: &[String], destination: &[String], replace: bool) -> Outcome<()> {
        let (from, to) = (self.entry(source)?, self.entry(destination)?);
        let moved = self.node(&from.path()).ok_or("notFound")?;
        let is_directory = matches!(moved, Node::Directory(..));
        let target = self.node(&to.path());
        if target.is_some() && !replace {
            return Err("alreadyExists");
        }
        if from == to {
            return Ok(());
        }
        if to.parent.starts_with(&from.path()) {
            return Err("other");
        }
        if from.parent.starts_with(&to.path()) {
            return Err("notEmpty");
        }
        match target {
            Some(Node::Directory(..)) if !is_directory => return Err("isDirectory"),
            Some(Node::Directory(children, _)) if !children.is_empty() => return Err("notEmpty"),
            Some(Node::File(..) | Node::Link(_)) if is_directory => return Err("notDirectory"),
            _ => {}
        }
        let moved = self.take(&from);
        self.put(&to, moved);
        Ok(())
    }

    /// `None`: a directory onto something that is there, whose outcome depends on the order of a listing.
    pub(crate) fn copy(
        &mut self,
        source: &[String],
        destination: &[String],
        recursive: bool,
    ) -> Option<Outcome<()>> {
        let copied = self
            .entry(source)
            .and_then(|spot| self.node(&spot.path()).cloned().map(|node| (spot, node)).ok_or("notFound"));
        match copied {
            Err(failure) => Some(Err(failure)),
            Ok((_, Node::Link(text))) => Some(self.create_link(destination, &text)),
            Ok((from, Node::File(content, mode))) => Some(self.copy_file(&from, content, mode, destination)),
            Ok((_, Node::Directory(..))) if !recursive => Some(Err("isDirectory")),
            Ok((from, directory)) => self.copy_directory(&from, directory, destination),
        }
    }

    fn copy_file(&mut self, from: &Spot, content: Vec<u8>, mode: u32, to: &[String]) -> Outcome<()> {
        let to = self.resolve(to, true)?;
        if matches!(self.node(&to.path()), Some(Node::Directory(..))) {
            return Err("isDirectory");
        }
        if to != *from {
            self.put(&to, Node::File(content, mode));
        }
        Ok(())
    }

    fn copy_directory(&mut self, from: &Spot, directory: Node, to: &[String]) -> Option<Outcome<()>> {
        match self.lies_in(to, &from.path()) {
            Err(failure) => return Some(Err(failure)),
            Ok(true) => return Some(Err("other")),
            Ok(false) => {}
        }
        if self.resolve(to, false).is_ok_and(|spot| self.node(&spot.path()).is_some()) {
            return None;
        }
        if let Err(failure) = self.create_directory(to, true) {
            return Some(Err(failure));
        }
        let spot = self.resolve(to, true).expect("it was made");
        let copy = self.created(&directory);
        self.put(&spot, copy);
        Some(Ok(()))
    }

    /// A copy of a directory: modes of files are kept, those of directories are those of new ones.
    fn created(&self, node: &Node) -> Node {
        match node {
            Node::Directory(children, _) => Node::Directory(
                children.iter().map(|(name, child)| (name.clone(), self.created(child))).collect(),
                0o777 & !self.umask,
            ),
            other => other.clone(),
        }
    }

    /// Whether what there is of a path lies in a directory.
    fn lies_in(&self, path: &[String], directory: &[String]) -> Outcome<bool> {
        for depth in (0..=path.len()).rev() {
            match self.existing(&path[..depth]) {
                Err("notFound") => {}
                Err(failure) => return Err(failure),
                Ok((spot, Node::Directory(..))) => return Ok(spot.path().starts_with(directory)),
                Ok(_) => return Ok(false),
            }
        }
        Ok(false)
    }

    pub(crate) fn set_mode(&mut self, path: &[String], new: u32) -> Outcome<()> {
        let (spot, node) = self.existing(path)?;
        let mut node = node.clone();
        match &mut node {
            Node::File(_, mode) | Node::Directory(_, mode) => *mode = new,
            Node::Link(_) => {}
        }
        self.put(&spot, node);
        Ok(())
    }

    pub(crate) fn create_link(&mut self, path: &[String], text: &str) -> Outcome<()> {
        let spot = self.entry(path)?;
        if self.node(&spot.path()).is_some() {
            return Err("alreadyExists");
        }
        self.put(&spot, Node::Link(text.to_owned()));
        Ok(())
    }
}

/// The same of a walk's answer, relative to its root.
pub(crate) fn walked(root: &std::path::Path, entries: Vec<WalkEntry>) -> Vec<(Names, WalkKind)> {
    let names = |entry: &WalkEntry| {
        let path = entry.path.to_native_path().expect("a native path");
        let below = path.strip_prefix(root).expect("below the root");
        below.iter().map(|name| name.to_str().expect("text").to_owned()).collect()
    };
    entries.iter().map(|entry| (names(entry), entry.kind)).collect()
}
