// SPDX-License-Identifier: Apache-2.0
//! Paths: of leaves, and as requests have them, with wildcards (gNMI specification 0.10, section 2.2.2).

use std::collections::HashSet;
use std::fmt;

use tonic::Status;

use super::proto::gnmi;
use super::schema::{MODELS, Node, ROOT};
use super::value::{self, Value};

/// Steps of a path in a request, with those of its prefix, and bytes of their names and keys.
const MAX_PATH_STEPS: usize = 32;
const MAX_PATH_LEN: usize = 4096;

/// A step to a node: its name, and which entry if it is one of a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Step {
    pub name: &'static str,
    pub key: Option<(&'static str, String)>,
}

/// The way to a node that there is.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub Vec<Step>);

impl Path {
    pub fn join(&self, name: &'static str, key: Option<(&'static str, String)>) -> Path {
        let mut steps = self.0.clone();
        steps.push(Step { name, key });
        Path(steps)
    }

    pub fn starts_with(&self, prefix: &Path) -> bool {
        self.0.starts_with(&prefix.0)
    }

    /// The key of the list `list`.
    pub fn key(&self, list: &str) -> Option<&str> {
        self.0.iter().find(|step| step.name == list)?.key.as_ref().map(|(_, value)| value.as_str())
    }

    /// The step at `index` has this name.
    pub fn has(&self, index: usize, name: &str) -> bool {
        self.0.get(index).is_some_and(|step| step.name == name)
    }

    pub fn name(&self) -> &'static str {
        self.0.last().map_or("", |step| step.name)
    }

    pub fn node(&self) -> Option<&'static Node> {
        self.0.iter().try_fold(&ROOT, |node, step| node.child(step.name))
    }

    /// The value of a leaf that holds a key, from the key; text if it is none of the leaf's type.
    pub fn key_value(&self, key: &str) -> Value {
        let kind = self.node().and_then(Node::leaf_type);
        kind.and_then(|kind| value::parse(kind, key)).unwrap_or_else(|| key.into())
    }

    pub fn message(&self) -> gnmi::Path {
        let elem = |step: &Step| gnmi::PathElem {
            name: step.name.into(),
            key: step.key.iter().map(|(name, value)| (name.to_string(), value.clone())).collect(),
        };
        gnmi::Path { elem: self.0.iter().map(elem).collect(), ..Default::default() }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for step in &self.0 {
            write!(f, "/{}", step.name)?;
            if let Some((name, value)) = &step.key {
                write!(f, "[{name}={value}]")?;
            }
        }
        if self.0.is_empty() { f.write_str("/") } else { Ok(()) }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Name {
    Exact(String),
    /// `*`
    Any,
    /// `...`: any number of steps.
    Deep,
}

#[derive(Clone, Debug, PartialEq)]
struct Want {
    name: Name,
    /// `None`: any entry.
    key: Option<String>,
}

/// A path of a request, known to the schema.
#[derive(Clone, Debug)]
pub struct Pattern {
    wants: Vec<Want>,
    text: String,
}

impl Pattern {
    /// Parses prefix and path.
    pub fn parse(prefix: Option<&gnmi::Path>, path: &gnmi::Path) -> Result<Pattern, Status> {
        let mut wants = Vec::new();
        let mut text = String::new();
        let mut nodes: Vec<&'static Node> = vec![&ROOT];
        let messages: Vec<&gnmi::Path> = prefix.into_iter().chain([path]).collect();
        for message in &messages {
            let origin = message.origin.as_str();
            // Some clients take a module's name in front of a path for its origin.
            if !matches!(origin, "" | "openconfig") && !MODELS.iter().any(|(model, ..)| *model == origin) {
                return Err(Status::unimplemented(format!("origin {origin:?}: this target has only openconfig's")));
            }
            #[allow(deprecated)]
            if !message.element.is_empty() {
                return Err(Status::unimplemented("`element` in a path is what gNMI had before `elem`: use that"));
            }
        }
        check_size(&messages)?;
        for elem in messages.iter().flat_map(|message| &message.elem) {
            text += &format!("/{}", elem.name);
            elem.key.iter().for_each(|(name, value)| text += &format!("[{name}={value}]"));
            let name = match elem.name.as_str() {
                "" => return Err(Status::invalid_argument(format!("{text}: a step without a name"))),
                "*" => Name::Any,
                "..." => Name::Deep,
                name => Name::Exact(name.rsplit_once(':').map_or(name, |(_, name)| name).into()),
            };
            nodes = match &name {
                Name::Exact(name) => nodes.iter().filter_map(|node| node.child(name)).collect(),
                Name::Any => nodes.iter().flat_map(|node| node.children()).collect(),
                Name::Deep => descendants(&nodes),
            };
            if nodes.is_empty() {
                return Err(Status::unimplemented(format!("{text}: this target has no such node")));
            }
            let mut key = None;
            for (name, value) in &elem.key {
                if !nodes.iter().any(|node| node.key() == Some(name)) {
                    return Err(Status::invalid_argument(format!("{text}: {name} is no key here")));
                }
                key = (value != "*").then(|| value.clone());
            }
            // Any number of steps twice is any number of them.
            if name != Name::Deep || wants.last().is_none_or(|last: &Want| last.name != Name::Deep) {
                wants.push(Want { name, key });
            }
        }
        if text.is_empty() {
            text.push('/');
        }
        Ok(Pattern { wants, text })
    }

    /// The one path that this is; an error if it has wildcards.
    pub fn exact(&self) -> Result<Path, Status> {
        let mut path = Path::default();
        let mut node = &ROOT;
        for want in &self.wants {
            let child = match &want.name {
                Name::Exact(name) => node.child(name),
                Name::Any | Name::Deep => None,
            };
            let key = child.and_then(Node::key);
            let (Some(child), true) = (child, key.is_some() == want.key.is_some()) else {
                let text = &self.text;
                return Err(Status::invalid_argument(format!("{text}: this needs one path, without wildcards")));
            };
            path = path.join(child.name, key.zip(want.key.clone()));
            node = child;
        }
        Ok(path)
    }

    /// Returns true if a path of these steps may be, or be below, or be above, what is wanted.
    pub fn may_match(&self, steps: &[Step]) -> bool {
        for (want, step) in self.wants.iter().zip(steps) {
            if want.name == Name::Deep {
                return true;
            }
            if !want.matches(step) {
                return false;
            }
        }
        true
    }

    /// Returns the number of a path's steps that are the node that is wanted, at most; `None`: the path is not in it.
    pub fn depth(&self, steps: &[Step]) -> Option<usize> {
        // Numbers of steps that all that is wanted so far can be.
        let mut can = vec![false; steps.len() + 1];
        can[0] = true;
        for want in &self.wants {
            if want.name == Name::Deep {
                let from = can.iter().position(|&can| can)?;
                can[from..].fill(true);
                continue;
            }
            for (number, step) in steps.iter().enumerate().rev() {
                can[number + 1] = can[number] && want.matches(step);
            }
            can[0] = false;
        }
        can.iter().rposition(|&can| can)
    }

    /// A state is asked for, which nobody can set.
    pub fn is_state(&self) -> bool {
        self.wants.iter().any(|want| want.name == Name::Exact("state".into()))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Want {
    fn matches(&self, step: &Step) -> bool {
        let named = match &self.name {
            Name::Exact(name) => name == step.name,
            Name::Any | Name::Deep => true,
        };
        named && (self.key.is_none() || self.key.as_ref() == step.key.as_ref().map(|(_, value)| value))
    }
}

/// Checks the size of a request, before anything is looked up.
fn check_size(messages: &[&gnmi::Path]) -> Result<(), Status> {
    let steps = messages.iter().map(|message| message.elem.len()).sum::<usize>();
    if steps > MAX_PATH_STEPS {
        let reason = format!("a path of {steps} steps: {MAX_PATH_STEPS} are the most, with those of its prefix");
        return Err(Status::resource_exhausted(reason));
    }
    let keys = |elem: &gnmi::PathElem| elem.key.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
    let elems = messages.iter().flat_map(|message| &message.elem);
    let bytes = elems.map(|elem| elem.name.len() + keys(elem)).sum::<usize>();
    if bytes > MAX_PATH_LEN {
        let reason = format!("a path of {bytes} bytes: {MAX_PATH_LEN} are the most, with those of its prefix");
        return Err(Status::resource_exhausted(reason));
    }
    Ok(())
}

/// The nodes and all that is below them, each once.
fn descendants(nodes: &[&'static Node]) -> Vec<&'static Node> {
    let mut all: Vec<&'static Node> = Vec::new();
    let mut seen = HashSet::new();
    let mut waiting = nodes.to_vec();
    while let Some(node) = waiting.pop() {
        if seen.insert(std::ptr::from_ref(node)) {
            all.push(node);
            waiting.extend(node.children());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn path(names: &[&str]) -> gnmi::Path {
        let elem = |name: &&str| gnmi::PathElem { name: name.to_string(), ..Default::default() };
        gnmi::Path { elem: names.iter().map(elem).collect(), ..Default::default() }
    }

    fn pattern(names: &[&str]) -> Pattern {
        Pattern::parse(None, &path(names)).unwrap()
    }

    fn steps(names: &[&'static str]) -> Vec<Step> {
        names.iter().map(|&name| Step { name, key: None }).collect()
    }

    #[test]
    fn many_wildcards_cost_no_more_than_the_tree() {
        let started = Instant::now();
        let twice = [["...", "*"]; 16].concat();
        for names in [vec!["..."; MAX_PATH_STEPS], vec!["*", "...", "*", "...", "state"], twice[..6].to_vec()] {
            let pattern = pattern(&names);
            let deep = steps(&["qos", "interfaces", "interface", "output", "queues", "queue", "state", "name"]);
            for _ in 0..1000 {
                pattern.depth(&deep);
            }
        }
        // More steps than the tree has: refused, and that at once.
        assert!(Pattern::parse(None, &path(&twice)).is_err());
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }

    #[test]
    fn the_longest_match_counts() {
        let leaf = steps(&["interfaces", "interface", "state", "counters", "in-pkts"]);
        for (names, depth) in [
            (&[][..], Some(0)),
            (&["..."][..], Some(5)),
            (&["...", "..."][..], Some(5)),
            (&["...", "state"][..], Some(3)),
            (&["interfaces", "...", "in-pkts"][..], Some(5)),
            (&["...", "interface", "...", "counters"][..], Some(4)),
            (&["*", "...", "interfaces"][..], None),
            (&["interfaces", "interface", "config"][..], None),
            (&["interfaces", "*", "*"][..], Some(3)),
        ] {
            assert_eq!(pattern(names).depth(&leaf), depth, "{names:?}");
        }
    }

    #[test]
    fn a_path_has_an_end() {
        let name = "x".repeat(MAX_PATH_LEN + 1);
        for (names, text) in [(vec!["..."; MAX_PATH_STEPS + 1], "33 steps"), (vec![name.as_str()], "4097 bytes")] {
            let error = Pattern::parse(None, &path(&names)).unwrap_err();
            assert_eq!(
                (error.code(), error.message().contains(text)),
                (tonic::Code::ResourceExhausted, true),
                "{error}"
            );
        }
        let (prefix, path) = (path(&["..."; 20]), path(&["..."; 20]));
        assert!(Pattern::parse(Some(&prefix), &path).unwrap_err().message().contains("40 steps"));
    }
}
