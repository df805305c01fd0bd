//! YAML as a tree in which everything knows its place.
//!
//! Maps keep their order and both of two equal keys: which of them was meant is
//! not for a reader to guess. Scalars keep their text, because `5` may be a
//! number or the name of a shard; only what reads them knows. Size, depth and
//! what aliases multiply are bounded.

use std::collections::HashMap;

use granit_parser::{Event, Marker, Parser, ScalarStyle, Span};

use super::problem::{Place, Problems};

/// Octets of one file.
pub(crate) const FILE_SIZE_MAX: usize = 1 << 20;
/// Maps and lists within each other.
pub(crate) const DEPTH_MAX: usize = 32;
/// Nodes of one file, those that aliases repeat included.
pub(crate) const NODES_MAX: usize = 100_000;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub at: Place,
    pub tree: Tree,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tree {
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    pub at: Place,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scalar {
    pub text: String,
    /// Neither quoted nor a block: it may be a number, a truth value or null.
    pub plain: bool,
    /// Where its first character stands.
    inside: Place,
    layout: Layout,
}

/// How the characters of a scalar lie in the file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Layout {
    OneLine,
    /// A literal block: line by line, at the same column.
    Lines,
    /// Folded or escaped: only its beginning is known.
    Other,
}

impl Scalar {
    /// A plain one that stands in no file: a default.
    pub fn of(text: &str) -> Scalar {
        let inside = Place::default();
        Scalar { text: text.to_owned(), plain: true, inside, layout: Layout::Other }
    }

    /// Where the character at this octet of the text stands.
    pub fn place_of(&self, offset: usize) -> Place {
        let before = self.text.get(..offset).unwrap_or(&self.text);
        let chars = |text: &str| text.chars().count() as u32;
        match self.layout {
            Layout::OneLine => Place { column: self.inside.column + chars(before), ..self.inside },
            Layout::Lines => {
                let line = self.inside.line + before.matches('\n').count() as u32;
                let in_line = before.rsplit('\n').next().unwrap_or(before);
                Place { line, column: self.inside.column + chars(in_line), ..self.inside }
            }
            Layout::Other => self.inside,
        }
    }

    pub fn is_null(&self) -> bool {
        self.plain && matches!(self.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }
}

impl Node {
    pub fn scalar(&self) -> Option<&Scalar> {
        match &self.tree {
            Tree::Scalar(scalar) => Some(scalar),
            _ => None,
        }
    }

    /// What it is called in a problem.
    pub fn describe(&self) -> String {
        match &self.tree {
            Tree::Scalar(scalar) if scalar.is_null() => "nothing".into(),
            Tree::Scalar(scalar) => format!("`{}`", shorten(&scalar.text)),
            Tree::List(_) => "a list".into(),
            Tree::Map(_) => "a map".into(),
        }
    }

    /// The value of the first such key of a map.
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.entries().iter().find(|(key, _)| key.name == name).map(|(_, value)| value)
    }

    /// The entries of a map; none if it is something else.
    pub fn entries(&self) -> &[(Key, Node)] {
        match &self.tree {
            Tree::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The items of a list; none if it is something else.
    pub fn items(&self) -> &[Node] {
        match &self.tree {
            Tree::List(items) => items,
            _ => &[],
        }
    }
}

/// Text from a file, short enough for a problem and on one line.
pub(crate) fn shorten(text: &str) -> String {
    const SHOWN_MAX: usize = 60;
    let mut shown: String = text.chars().take(SHOWN_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown.replace(['\n', '\r', '\t'], " ")
}

/// Reads one file. What is wrong with its YAML is noted; `None` then.
pub(crate) fn read(text: &str, file: u32, problems: &mut Problems) -> Option<Node> {
    let start = Place { file, line: 1, column: 1 };
    if text.len() > FILE_SIZE_MAX {
        problems.error(
            start,
            format!("the file has {} octets", text.len()),
            format!("accepted: up to {FILE_SIZE_MAX}; give every service a file of its own"),
        );
        return None;
    }
    let options = granit_parser::options! {
        strict_indentation: true,
        disallow_directives: true,
        flow_nesting_limit: DEPTH_MAX,
        block_nesting_limit: DEPTH_MAX,
    };
    let mut builder = Builder::new(text, file);
    for next in Parser::new_from_str_with_options(text, options) {
        let fault = match next {
            Ok((event, span)) => builder.take(event, span).err(),
            Err(error) => Some(Fault {
                at: builder.place(*error.marker()),
                what: format!("this is not YAML: {}", error.kind()),
                remedy:
                    "accepted: YAML 1.2 without directives, or JSON; look for a bracket or a quote \
                         that is not closed, and for lines that are not aligned"
                        .into(),
            }),
        };
        if let Some(fault) = fault {
            problems.error(fault.at, fault.what, fault.remedy);
            return None;
        }
    }
    if builder.root.is_none() {
        problems.error(start, "the file is empty", "accepted: a file that begins with `pharos:`");
    }
    builder.root
}

struct Fault {
    at: Place,
    what: String,
    remedy: String,
}

/// Puts events together. Nothing recurses: depth is bounded, but so is a stack.
struct Builder<'a> {
    text: &'a str,
    file: u32,
    root: Option<Node>,
    open: Vec<Open>,
    /// What each anchor stands for, and how many nodes that is.
    anchors: HashMap<usize, (Node, usize)>,
    nodes: usize,
}

/// A map or a list whose end was not seen yet.
struct Open {
    at: Place,
    anchor: usize,
    /// How many nodes there were when it began.
    nodes_before: usize,
    held: Held,
}

enum Held {
    List(Vec<Node>),
    Map(Vec<(Key, Node)>, Option<Key>),
}

impl<'a> Builder<'a> {
    fn new(text: &'a str, file: u32) -> Self {
        Builder { text, file, root: None, open: Vec::new(), anchors: HashMap::new(), nodes: 0 }
    }

    fn place(&self, marker: Marker) -> Place {
        Place { file: self.file, line: marker.line() as u32, column: marker.col() as u32 + 1 }
    }

    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Fault> {
        let at = self.place(span.start);
        match event {
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, _, Some(_))
            | Event::MappingStart(_, _, Some(_)) => Err(Fault {
                at: span.tag_start.map_or(at, |tag| self.place(tag)),
                what: "there is a tag".into(),
                remedy:
                    "accepted: values without `!`; put quotes around a text that begins with it"
                        .into(),
            }),
            Event::Scalar(text, style, anchor, None) => {
                let scalar = self.scalar(text.into_owned(), style, span);
                self.add(Node { at, tree: Tree::Scalar(scalar) }, 1, anchor)
            }
            Event::SequenceStart(_, anchor, None) => self.begin(at, anchor, Held::List(Vec::new())),
            Event::MappingStart(_, anchor, None) => {
                self.begin(at, anchor, Held::Map(Vec::new(), None))
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(id) => match self.anchors.get(&id) {
                Some((node, size)) => {
                    let (node, size) = (node.clone(), *size);
                    self.add(node, size, 0)
                }
                None => Err(Fault {
                    at,
                    what: "an alias stands within what it stands for".into(),
                    remedy: "write the value out instead".into(),
                }),
            },
            Event::DocumentStart(..) if self.root.is_some() => Err(Fault {
                at,
                what: "a second document begins".into(),
                remedy: "accepted: one document in a file; move this one to a file of its own"
                    .into(),
            }),
            _ => Ok(()),
        }
    }

    fn begin(&mut self, at: Place, anchor: usize, held: Held) -> Result<(), Fault> {
        if self.open.len() == DEPTH_MAX {
            return Err(Fault {
                at,
                what: format!("more than {DEPTH_MAX} maps and lists lie within each other"),
                remedy: "no runbook needs that: look for a bracket or an indentation too many"
                    .into(),
            });
        }
        self.open.push(Open { at, anchor, nodes_before: self.nodes, held });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Fault> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let tree = match open.held {
            Held::List(items) => Tree::List(items),
            Held::Map(entries, _) => Tree::Map(entries),
        };
        // What is within was counted when it was added.
        let within = self.nodes - open.nodes_before;
        let node = Node { at: open.at, tree };
        if open.anchor != 0 {
            self.anchors.insert(open.anchor, (node.clone(), within + 1));
        }
        self.add(node, 1, 0)
    }

    fn add(&mut self, node: Node, size: usize, anchor: usize) -> Result<(), Fault> {
        self.nodes += size;
        if self.nodes > NODES_MAX {
            return Err(Fault {
                at: node.at,
                what: format!("the file has more than {NODES_MAX} values"),
                remedy: "give every service a file of its own, and use fewer aliases".into(),
            });
        }
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), size));
        }
        match self.open.last_mut().map(|open| &mut open.held) {
            None => self.root = Some(node),
            Some(Held::List(items)) => items.push(node),
            Some(Held::Map(entries, key)) => match key.take() {
                Some(key) => entries.push((key, node)),
                None => match node.tree {
                    Tree::Scalar(scalar) => *key = Some(Key { at: node.at, name: scalar.text }),
                    _ => {
                        return Err(Fault {
                            at: node.at,
                            what: "a map or a list is used as a key".into(),
                            remedy: "accepted: a name; put quotes around a text that begins with \
                                     `{` or `[`"
                                .into(),
                        });
                    }
                },
            },
        }
        Ok(())
    }

    fn scalar(&self, text: String, style: ScalarStyle, span: Span) -> Scalar {
        let start = self.place(span.start);
        let one_line = span.start.line() == span.end.line();
        let (inside, layout) = match style {
            ScalarStyle::Plain if one_line => (start, Layout::OneLine),
            ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted if one_line => {
                // Past the quote. An escape makes the rest longer than the text.
                let written = (span.end.col() - span.start.col()).saturating_sub(2);
                let layout =
                    if written == text.chars().count() { Layout::OneLine } else { Layout::Other };
                (Place { column: start.column + 1, ..start }, layout)
            }
            ScalarStyle::Literal => match self.first_line_of_block(span.start) {
                Some((line, column)) => (Place { line, column, ..start }, Layout::Lines),
                None => (start, Layout::Other),
            },
            _ => (start, Layout::Other),
        };
        Scalar { text, plain: style == ScalarStyle::Plain, inside, layout }
    }

    /// Where the text of a block begins: on the line of its start, or on the one
    /// below if its mark stands there. `None` if that line is empty: such lines
    /// are part of the text, but say nothing about the column.
    fn first_line_of_block(&self, start: Marker) -> Option<(u32, u32)> {
        let mut lines = self.text.lines().enumerate().skip(start.line() - 1);
        let (mut at, mut line) = lines.next()?;
        if line.chars().nth(start.col()) == Some('|') {
            (at, line) = lines.next()?;
        }
        let indent = line.len() - line.trim_start_matches(' ').len();
        (indent < line.len()).then_some((at as u32 + 1, indent as u32 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_one(text: &str) -> Result<Node, String> {
        let mut problems = Problems::default();
        let file = problems.open("a.yaml");
        read(text, file, &mut problems).ok_or_else(|| {
            problems.into_sorted().iter().map(|problem| format!("{problem}\n")).collect()
        })
    }

    #[test]
    fn everything_knows_its_place_and_equal_keys_stay() {
        let node = read_one("a: 1\nb:\n  - x\n  - {c: 'y', c: z}\n").unwrap();
        let map = &node.get("b").unwrap().items()[1];
        let keys: Vec<_> =
            map.entries().iter().map(|(key, _)| (key.name.as_str(), key.at.column)).collect();
        assert_eq!(keys, [("c", 6), ("c", 14)]);
        assert_eq!(map.at.line, 4);
        assert_eq!(map.entries()[0].1.scalar().unwrap().place_of(0).column, 10);
        assert!(!map.entries()[0].1.scalar().unwrap().plain);
    }

    #[test]
    fn a_place_within_a_text_is_known() {
        let node = read_one("q: abc def\nr: |\n  one\n  two three\n").unwrap();
        let place = |key, offset| {
            let at = node.get(key).unwrap().scalar().unwrap().place_of(offset);
            (at.line, at.column)
        };
        assert_eq!(place("q", 4), (1, 8));
        assert_eq!(place("r", 0), (3, 3));
        assert_eq!(place("r", 8), (4, 7));
    }

    #[test]
    fn what_is_no_yaml_is_a_problem_with_a_place() {
        for (text, expected) in [
            ("a: [1", "a.yaml:1:4: error: this is not YAML"),
            ("a: !!str 1", "a.yaml:1:4: error: there is a tag"),
            ("a: 1\n---\nb: 2", "a.yaml:2:1: error: a second document begins"),
            ("? [a]\n: 1", "a.yaml:1:3: error: a map or a list is used as a key"),
            ("a: &x [*x]", "a.yaml:1:8: error: an alias stands within"),
            ("", "a.yaml:1:1: error: the file is empty"),
            ("%YAML 1.2\n---\na: 1", "a.yaml:1:1: error: this is not YAML"),
        ] {
            let problems = read_one(text).unwrap_err();
            assert!(problems.starts_with(expected), "{text:?}: {problems}");
        }
    }

    #[test]
    fn aliases_cannot_multiply_without_end() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
        for level in 1..9 {
            let below = format!("*a{}", level - 1);
            text += &format!("a{level}: &a{level} [{}]\n", [below.as_str(); 9].join(", "));
        }
        assert!(read_one(&text).unwrap_err().contains("more than 100000 values"));
        let deep = "[".repeat(10_000);
        assert!(read_one(&deep).is_err());
    }
}
