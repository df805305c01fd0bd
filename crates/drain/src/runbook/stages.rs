//! The stages that templates are made of: their inputs, and what those may be.

/// Stages of a template, and as many of its undo. What follows from their ways is looked
/// at again for each task, so the time that takes must not be for others to choose.
pub(crate) const STAGES_MAX: usize = 100;
/// Parameters of a template.
pub(crate) const PARAMETERS_MAX: usize = 100;

/// What an input of a stage, or a parameter of a template, can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgumentKind {
    Knob,
    Knobs,
    Share,
    Number,
    /// People: a whole number, at least 1.
    Count,
    Text,
    Duration,
    Condition,
    Budget,
    Choice,
    /// Where a knob can be moved in steps: a share, a number, or `original`.
    Goal,
    /// What a knob can be set to: also a text.
    Setting,
    /// Names with texts, for a driver.
    Arguments,
}

use ArgumentKind::*;

/// As they are written. In the order of [`ArgumentKind`].
pub(crate) const ARGUMENT_KINDS: &[&str] = &[
    "knob",
    "knobs",
    "share",
    "number",
    "count",
    "text",
    "duration",
    "condition",
    "budget",
    "choice",
    "goal",
    "setting",
    "arguments",
];

const ALL_KINDS: [ArgumentKind; 13] = [
    Knob, Knobs, Share, Number, Count, Text, Duration, Condition, Budget, Choice, Goal, Setting,
    Arguments,
];

impl ArgumentKind {
    pub fn parse(name: &str) -> Option<ArgumentKind> {
        ALL_KINDS.into_iter().find(|kind| kind.name() == name)
    }

    pub fn name(self) -> &'static str {
        ARGUMENT_KINDS[self as usize]
    }

    /// Whether an input of this kind takes a parameter of that kind.
    pub fn takes(self, given: ArgumentKind) -> bool {
        self == given
            || match self {
                Knobs => given == Knob,
                Goal => matches!(given, Share | Number | Count),
                Setting => matches!(given, Goal | Share | Number | Count | Text | Choice),
                Number => matches!(given, Share | Count),
                Text => !matches!(given, Condition | Arguments | Knobs),
                _ => false,
            }
    }

    /// The kinds of parameters that an input of this kind takes.
    pub fn taken(self) -> impl Iterator<Item = &'static str> {
        ALL_KINDS.into_iter().filter(move |kind| self.takes(*kind)).map(ArgumentKind::name)
    }
}

#[derive(Debug)]
pub(crate) struct StageShape {
    pub name: &'static str,
    pub about: &'static str,
    pub inputs: &'static [Input],
}

#[derive(Debug)]
pub(crate) struct Input {
    pub name: &'static str,
    pub kind: ArgumentKind,
    pub required: bool,
    /// If it is a [`ArgumentKind::Choice`].
    pub choices: &'static [&'static str],
    pub about: &'static str,
}

const fn required(name: &'static str, kind: ArgumentKind, about: &'static str) -> Input {
    Input { name, kind, required: true, choices: &[], about }
}

const fn optional(name: &'static str, kind: ArgumentKind, about: &'static str) -> Input {
    Input { name, kind, required: false, choices: &[], about }
}

/// What comes back by itself, as sessions do, needs no restore.
const RETURNS: Input = Input {
    name: "returns",
    kind: Choice,
    required: false,
    choices: &["by-restore", "by-itself"],
    about: "Whether a restore must put it back (`by-restore`, unless told) or not.",
};

/// The names of [`STAGES`], in their order.
pub(crate) const STAGE_NAMES: &[&str] = &[
    "Shift",
    "Set",
    "PutBack",
    "Verify",
    "Govern",
    "Act",
    "Await",
    "Check",
    "TimedWait",
    "Barrier",
    "Approve",
    "ChangeLog",
    "Notify",
];

pub(crate) static STAGES: [StageShape; 13] = [
    StageShape {
        name: "Shift",
        about: "Moves a knob in steps, as fast as health allows.",
        inputs: &[
            required("knob", Knob, "What is moved."),
            required("to", Goal, "Where to: a share, a number, or `original`."),
            RETURNS,
        ],
    },
    StageShape {
        name: "Set",
        about: "Writes a knob once.",
        inputs: &[
            required("knob", Knob, "What is written."),
            required("to", Setting, "What to: a share, a number, a text, or `original`."),
            optional(
                "of",
                Setting,
                "If this closes a fence: the primary that it keeps from taking writes.",
            ),
            RETURNS,
        ],
    },
    StageShape {
        name: "PutBack",
        about: "Writes a knob back to where the task found it.",
        inputs: &[required("knob", Knob, "What is written.")],
    },
    StageShape {
        name: "Verify",
        about: "Done if a knob still has a value, failed if it has another.",
        inputs: &[
            required("knob", Knob, "What is read."),
            required("to", Setting, "The value that it must have."),
        ],
    },
    StageShape {
        name: "Govern",
        about: "Keeps a knob at the task's share of a budget until the task ends.",
        inputs: &[
            required("knob", Knob, "The rate that is kept."),
            required("budget", Budget, "What the rate is a share of."),
        ],
    },
    StageShape {
        name: "Act",
        about: "Has a driver do something once.",
        inputs: &[
            required("driver", Text, "Who does it."),
            required("action", Text, "What it does."),
            optional("arguments", Arguments, "What the driver needs for it."),
            optional("changes", Knobs, "The knobs that it turns; a restore must put them back."),
        ],
    },
    StageShape {
        name: "Await",
        about: "Goes on when the condition holds.",
        inputs: &[
            required("condition", Condition, "What is waited for."),
            optional(
                "or_exactly",
                Condition,
                "What is waited for if `condition` is not given: this one without tolerance.",
            ),
        ],
    },
    StageShape {
        name: "Check",
        about: "Done if the condition holds now, failed if it does not.",
        inputs: &[required("condition", Condition, "What must hold.")],
    },
    StageShape {
        name: "TimedWait",
        about: "Lets time pass.",
        inputs: &[required("span", Duration, "How much.")],
    },
    StageShape {
        name: "Barrier",
        about: "Goes on when all tasks with this barrier are at it, or past it.",
        inputs: &[required("name", Text, "The barrier.")],
    },
    StageShape {
        name: "Approve",
        about: "Goes on when so many people have approved.",
        inputs: &[
            required("question", Text, "What they are asked."),
            optional("people", Count, "How many: 1 unless told."),
        ],
    },
    StageShape {
        name: "ChangeLog",
        about: "Writes a line where others look for changes.",
        inputs: &[required("text", Text, "The line.")],
    },
    StageShape {
        name: "Notify",
        about: "Tells somebody.",
        inputs: &[
            required("channel", Text, "Who is told."),
            required("text", Text, "What is said."),
        ],
    },
];

pub(crate) fn stage_shape(name: &str) -> Option<&'static StageShape> {
    STAGES.iter().find(|stage| stage.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_tables_agree() {
        assert!(STAGES.iter().map(|stage| stage.name).eq(STAGE_NAMES.iter().copied()));
        for (kind, name) in ALL_KINDS.into_iter().zip(ARGUMENT_KINDS) {
            assert_eq!(ArgumentKind::parse(name), Some(kind));
        }
    }
}
