//! JSON bodies with fields of a change.

use serde_json::{Map, Number, Value};

use super::template::{Field, Part, Placeholder, Scope, Subject, Template};

/// A parsed body. Fields stand in strings: `"${host}:${port}"`. A string with one field and nothing else becomes what the
/// field is: `"${port}"` a number, `"${inService}"` a boolean, `"${metadata}"` an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Body {
    Literal(Value),
    Text(Template),
    Typed(Placeholder),
    Array(Vec<Body>),
    Object(Vec<(String, Body)>),
}

impl Body {
    /// # Errors
    /// Fails with a message for people if the text is not JSON, or if a template in it is wrong.
    pub(crate) fn parse(text: &str, scope: Scope) -> Result<Self, String> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| format!("the body is not JSON: {error}"))?;
        Self::of(value, scope)
    }

    fn of(value: Value, scope: Scope) -> Result<Self, String> {
        Ok(match value {
            Value::String(text) => Self::of_text(Template::parse(&text, scope)?)?,
            Value::Array(values) => {
                Body::Array(values.into_iter().map(|value| Self::of(value, scope)).collect::<Result<_, _>>()?)
            }
            Value::Object(fields) => {
                let field = |(key, value): (String, Value)| match key.contains("${") {
                    true => Err(format!("the key {key:?} of the body must not contain a field")),
                    false => Ok((key, Self::of(value, scope)?)),
                };
                Body::Object(fields.into_iter().map(field).collect::<Result<_, _>>()?)
            }
            value => Body::Literal(value),
        })
    }

    fn of_text(template: Template) -> Result<Self, String> {
        if let [Part::Field(placeholder)] = template.parts.as_slice()
            && !placeholder.is_text
            && matches!(placeholder.field, Field::Port | Field::Weight | Field::InService | Field::Metadata)
        {
            return Ok(Body::Typed(placeholder.clone()));
        }
        if template.names(&Field::Metadata) {
            return Err("${metadata} must be alone in its string".to_owned());
        }
        Ok(Body::Text(template))
    }

    /// # Errors
    /// Fails if a field is not there.
    pub(crate) fn fill(&self, subject: Subject<'_>) -> Result<Value, String> {
        Ok(match self {
            Body::Literal(value) => value.clone(),
            Body::Text(template) => Value::String(template.fill(subject)?),
            Body::Typed(placeholder) => typed(placeholder, subject)?,
            Body::Array(values) => {
                Value::Array(values.iter().map(|value| value.fill(subject)).collect::<Result<_, _>>()?)
            }
            Body::Object(fields) => {
                let field = |(key, value): &(String, Body)| Ok((key.clone(), value.fill(subject)?));
                Value::Object(fields.iter().map(field).collect::<Result<Map<_, _>, String>>()?)
            }
        })
    }

    pub(crate) fn names(&self, wanted: &Field) -> bool {
        match self {
            Body::Literal(_) => false,
            Body::Text(template) => template.names(wanted),
            Body::Typed(placeholder) => placeholder.field == *wanted,
            Body::Array(values) => values.iter().any(|value| value.names(wanted)),
            Body::Object(fields) => fields.iter().any(|(_, value)| value.names(wanted)),
        }
    }
}

fn typed(placeholder: &Placeholder, subject: Subject<'_>) -> Result<Value, String> {
    let instance = subject.instance.ok_or_else(|| format!("there is no {}", placeholder.name()))?;
    Ok(match placeholder.field {
        Field::Port => Value::from(instance.port),
        Field::InService => Value::from(instance.in_service),
        Field::Weight => Value::Number(number(instance.weight)?),
        _ => instance.metadata.iter().map(|(key, value)| (key.clone(), value.as_str())).collect(),
    })
}

/// Returns a whole number as such: many servers read nothing else.
fn number(weight: f64) -> Result<Number, String> {
    let text = weight.to_string();
    text.parse().map_err(|_| format!("the weight {weight} is not a number of JSON"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::http::tests::{example, subject};

    #[test]
    fn fields_keep_their_types_and_are_escaped() {
        let (service, mut instance) = example();
        let text = r#"{"name": "${service}", "at": ["${host}:${port}", "${port}", "${port|string}"], "w": "${weight}",
            "up": "${inService}", "zone": "z ${metadata['zone']}", "all": "${metadata}", "one": 1, "no": null}"#;
        let body = Body::parse(text, Scope::Instance).unwrap();
        let expected = json!({
            "name": "shop", "at": ["10.0.0.7:8080", 8080, "8080"], "w": 2, "up": true, "zone": "z a \"b\"/ü",
            "all": {"zone": "a \"b\"/ü"}, "one": 1, "no": null,
        });
        assert_eq!(body.fill(subject(&service, &instance)).unwrap(), expected);
        assert!(body.names(&Field::InService) && body.names(&Field::Metadata) && !body.names(&Field::Id));

        let body = Body::parse(r#""${weight}""#, Scope::Instance).unwrap();
        instance.weight = 0.5;
        assert_eq!(body.fill(subject(&service, &instance)).unwrap(), json!(0.5));
        instance.weight = f64::NAN;
        assert!(body.fill(subject(&service, &instance)).unwrap_err().contains("NaN"));
    }

    #[test]
    fn wrong_bodies_are_rejected_with_the_reason() {
        for (text, reason) in [
            ("{", "not JSON"),
            (r#"{"port": ${port}}"#, "not JSON"),
            (r#"{"a": ["${ip}"]}"#, "no field \"ip\""),
            (r#"{"${id}": 1}"#, "must not contain a field"),
            (r#""x ${metadata}""#, "alone in its string"),
        ] {
            let error = Body::parse(text, Scope::Instance).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
