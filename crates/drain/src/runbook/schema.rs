//! The JSON Schema of runbooks, made from the same table that files are checked
//! with. Editors complete and check with it; it says nothing that the check
//! does not, and less where only all files together can tell.

use serde_json::{Map, Value, json};

use super::arguments::COUNT_MAX;
use super::shape::{self, FORMATS, Kind, Need, Shape};
use super::spec::Template;
use super::stages::{ArgumentKind, STAGES, StageShape};
use super::words;

/// The schema for all formats of files. Parameters of the given templates are
/// part of it.
pub(crate) fn schema(templates: &[&Template]) -> Value {
    let mut defs = Map::new();
    for (_, shape) in &FORMATS {
        define(shape, &mut defs);
    }
    define(&shape::CONDITION_IN_PLACE, &mut defs);
    defs.insert("use_of_condition".into(), use_of_condition());
    let of_templates = templates.iter().map(|template| of_template(template)).collect::<Vec<_>>();
    let of_stages = STAGES.iter().map(of_stage).collect();
    restrict(&mut defs, &shape::TASK, of_templates);
    restrict(&mut defs, &shape::STAGE, of_stages);
    let formats: Vec<_> = FORMATS
        .iter()
        .map(|(format, shape)| {
            json!({
                "if": { "properties": { "pharos": { "const": format } }, "required": ["pharos"] },
                "then": { "$ref": reference(shape) },
            })
        })
        .collect();
    let names: Vec<_> = FORMATS.iter().map(|(format, _)| *format).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Runbooks of Pharos",
        "type": "object",
        "required": ["pharos"],
        "properties": { "pharos": { "enum": names, "description": "The format of this file." } },
        "allOf": formats,
        "$defs": defs,
    })
}

/// `a condition in place` is `condition_in_place` there.
fn key(shape: &Shape) -> String {
    let name = shape.name.trim_start_matches("a ").trim_start_matches("an ");
    name.replace(' ', "_")
}

fn reference(shape: &Shape) -> String {
    format!("#/$defs/{}", key(shape))
}

fn define(shape: &Shape, defs: &mut Map<String, Value>) {
    if defs.contains_key(&key(shape)) {
        return;
    }
    // Its place is taken before its fields are looked at: shapes may name
    // each other.
    defs.insert(key(shape), Value::Null);
    let mut properties = Map::new();
    for field in shape.fields {
        let mut property = of_kind(&field.kind, defs);
        property["description"] = json!(field.about);
        if let Need::Default(default) = field.need {
            let default = match field.kind {
                Kind::Truth => json!(default == "true"),
                Kind::Integer { .. } => default.parse::<i64>().map_or(Value::Null, Value::from),
                _ => json!(default),
            };
            property["default"] = default;
        }
        properties.insert(field.name.into(), property);
    }
    let required: Vec<_> = shape
        .fields
        .iter()
        .filter(|field| field.need == Need::Required)
        .map(|field| field.name)
        .collect();
    let mut object = json!({
        "type": "object",
        "description": shape.about,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    if !shape.one_of.is_empty() {
        let groups = shape.one_of.iter().map(|group| {
            let ways: Vec<_> = group.iter().map(|name| json!({ "required": [name] })).collect();
            json!({ "oneOf": ways })
        });
        object["allOf"] = groups.collect();
    }
    defs.insert(key(shape), object);
}

fn of_kind(kind: &Kind, defs: &mut Map<String, Value>) -> Value {
    match kind {
        Kind::Text => json!({ "type": ["string", "number", "boolean"] }),
        Kind::Query => json!({ "type": ["string", "number"] }),
        Kind::Knob => json!({ "type": "string", "pattern": words::KNOB_PATTERN }),
        Kind::Name => name(words::NAME_PATTERN),
        Kind::Reference => name(words::REFERENCE_PATTERN),
        Kind::Choice(choices) => json!({ "enum": choices }),
        Kind::Truth => json!({ "type": "boolean" }),
        Kind::Number { min, max } => {
            let mut number = json!({ "type": "number" });
            for (name, bound) in [("minimum", min), ("maximum", max)] {
                if bound.is_finite() {
                    number[name] = json!(bound);
                }
            }
            number
        }
        Kind::Integer { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Kind::Share { above_zero } => share(*above_zero),
        Kind::Duration => json!({ "type": "string", "pattern": words::DURATION_PATTERN }),
        Kind::Timeout => json!({ "anyOf": [
            { "type": "string", "pattern": words::DURATION_PATTERN },
            { "type": "string", "pattern": "^[$]" },
        ] }),
        Kind::Value => json!({}),
        Kind::Condition => json!({ "$ref": "#/$defs/use_of_condition" }),
        Kind::List(of) => json!({ "type": "array", "items": of_kind(of, defs) }),
        Kind::Map(of) => json!({
            "type": "object",
            "propertyNames": { "pattern": words::NAME_PATTERN },
            "additionalProperties": of_kind(of, defs),
        }),
        Kind::Record(shape) => {
            define(shape, defs);
            json!({ "$ref": reference(shape) })
        }
    }
}

/// A shard or a datacenter may be called `7`.
fn name(pattern: &str) -> Value {
    json!({ "anyOf": [{ "type": "string", "pattern": pattern }, { "type": "integer" }] })
}

fn share(above_zero: bool) -> Value {
    let bound = if above_zero { "exclusiveMinimum" } else { "minimum" };
    json!({ "anyOf": [
        { "type": "string", "pattern": words::SHARE_PATTERN },
        { "type": "number", bound: 0, "maximum": 1 },
    ] })
}

fn use_of_condition() -> Value {
    json!({ "anyOf": [
        name(words::REFERENCE_PATTERN),
        { "$ref": reference(&shape::CONDITION_IN_PLACE) },
    ] })
}

fn restrict(defs: &mut Map<String, Value>, shape: &Shape, rules: Vec<Value>) {
    if let Some(object) = defs.get_mut(&key(shape)) {
        object["allOf"] = Value::Array(rules);
    }
}

/// What a task may say with a template that everybody has.
fn of_template(template: &Template) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for parameter in &template.parameters {
        let mut property =
            parameter.kind.map_or(json!({}), |kind| of_argument(kind, &parameter.choices));
        property["description"] = json!(parameter.about);
        properties.insert(parameter.name.value.clone(), property);
        if parameter.required {
            required.push(parameter.name.value.as_str());
        }
    }
    rule("template", &template.name.value, &template.about, properties, required)
}

fn of_stage(stage: &StageShape) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for input in stage.inputs {
        let choices: Vec<_> = input.choices.iter().map(|choice| (*choice).to_owned()).collect();
        let literal = of_argument(input.kind, &choices);
        let property = json!({
            "anyOf": [literal, { "type": "string", "pattern": "[$]" }],
            "description": input.about,
        });
        properties.insert(input.name.into(), property);
        if input.required {
            required.push(input.name);
        }
    }
    rule("stage", stage.name, stage.about, properties, required)
}

fn rule(
    key: &str,
    value: &str,
    about: &str,
    properties: Map<String, Value>,
    required: Vec<&str>,
) -> Value {
    let mut then = json!({ "description": about, "properties": { "with": {
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    } } });
    if !required.is_empty() {
        then["required"] = json!(["with"]);
    }
    let named = json!({ "properties": { key: { "const": value } }, "required": [key] });
    json!({ "if": named, "then": then })
}

fn of_argument(kind: ArgumentKind, choices: &[String]) -> Value {
    let knob = json!({ "type": "string", "pattern": words::KNOB_PATTERN });
    match kind {
        ArgumentKind::Knob => knob,
        ArgumentKind::Knobs => json!({ "anyOf": [knob, { "type": "array", "items": knob }] }),
        ArgumentKind::Share => share(false),
        ArgumentKind::Number => json!({ "type": "number" }),
        ArgumentKind::Count => json!({ "type": "integer", "minimum": 1, "maximum": COUNT_MAX }),
        ArgumentKind::Text | ArgumentKind::Setting => {
            json!({ "type": ["string", "number", "boolean"] })
        }
        ArgumentKind::Duration => json!({ "type": "string", "pattern": words::DURATION_PATTERN }),
        ArgumentKind::Condition => json!({ "$ref": "#/$defs/use_of_condition" }),
        ArgumentKind::Budget => name(words::NAME_PATTERN),
        ArgumentKind::Choice => json!({ "enum": choices }),
        ArgumentKind::Goal => json!({ "anyOf": [
            { "type": "string", "pattern": words::SHARE_PATTERN },
            { "type": "number" },
            { "const": "original" },
        ] }),
        ArgumentKind::Arguments => json!({
            "type": "object",
            "additionalProperties": { "type": ["string", "number", "boolean"] },
        }),
    }
}
