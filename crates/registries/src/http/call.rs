//! One kind of call: its parsed options, the requests, and what a status means.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING,
};
use hyper::{Method, Request, StatusCode, Uri};

use super::body::Body;
use super::options::{HttpCall, HttpStatuses};
use super::template::{Field, Part, Scope, Subject, Template};
use crate::http_client::escaped;

const METHODS: [Method; 5] = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
/// What the client sets itself.
const RESERVED: [HeaderName; 5] = [AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING];

/// A call that can be made.
#[derive(Clone, Debug)]
pub(super) struct Call {
    method: Method,
    path: Template,
    headers: Vec<(HeaderName, Template)>,
    body: Option<Body>,
    statuses: HttpStatuses,
}

/// What a status means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The change is made.
    Done,
    /// There is no such instance.
    Gone,
    /// Nothing was changed: try again.
    Retry,
    /// The change may have been made.
    Unknown,
    /// The change was not made.
    Failed,
}

impl Call {
    /// # Errors
    /// Fails with a message for people that says which option is unusable.
    pub(super) fn new(options: &HttpCall, scope: Scope) -> Result<Self, String> {
        let method = METHODS.into_iter().find(|method| method.as_str() == options.method);
        let method = method
            .ok_or_else(|| format!("method {:?}: use GET, POST, PUT, PATCH or DELETE", options.method))?;
        let header = |(name, value): (&String, &String)| {
            let template = Template::parse(value, scope).and_then(without_metadata);
            let template = template.map_err(|error| format!("header {name}: {error}"))?;
            let name: HeaderName = name.parse().map_err(|_| format!("{name:?} is not a name of a header"))?;
            if RESERVED.contains(&name) {
                return Err(format!("header {name} is set by Podward"));
            }
            Ok((name, template))
        };
        let body = match options.body.as_str() {
            "" => None,
            text => Some(Body::parse(text, scope)?),
        };
        check_statuses(&options.statuses)?;
        Ok(Self {
            method,
            path: path(&options.path, scope)?,
            headers: options.headers.iter().map(header).collect::<Result<_, String>>()?,
            body,
            statuses: options.statuses.clone(),
        })
    }

    /// Returns the request to an address.
    ///
    /// # Errors
    /// Fails with a message for people if a field is missing, or must not stand where it is named.
    pub(super) fn request(
        &self,
        address: &str,
        subject: Subject<'_>,
    ) -> Result<Request<Full<Bytes>>, String> {
        let url = format!("{address}{}", fill_path(&self.path, subject)?);
        let body = match &self.body {
            Some(body) => serde_json::to_vec(&body.fill(subject)?).map_err(|error| error.to_string())?,
            None => Vec::new(),
        };
        let mut request = Request::builder().method(&self.method).uri(url);
        if self.body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let mut request = request.body(Full::from(body)).map_err(|error| error.to_string())?;
        for (name, template) in &self.headers {
            let value = HeaderValue::from_str(&template.fill(subject)?)
                .map_err(|_| format!("the value of header {name} has characters that headers cannot have"))?;
            request.headers_mut().insert(name, value);
        }
        Ok(request)
    }

    /// Returns what a status means.
    pub(super) fn verdict(&self, status: StatusCode) -> Verdict {
        let HttpStatuses { done, gone, retry } = &self.statuses;
        let code = status.as_u16();
        match code {
            _ if done.contains(&code) => Verdict::Done,
            _ if gone.contains(&code) => Verdict::Gone,
            _ if retry.contains(&code) => Verdict::Retry,
            200..=299 if done.is_empty() => Verdict::Done,
            425 | 429 | 503 if retry.is_empty() => Verdict::Retry,
            200..=299 | 408 | 500..=599 => Verdict::Unknown,
            _ => Verdict::Failed,
        }
    }

    /// Returns true if the path, a header or the body names a field.
    pub(super) fn names(&self, wanted: &Field) -> bool {
        self.path.names(wanted)
            || self.headers.iter().any(|(_, template)| template.names(wanted))
            || self.body.as_ref().is_some_and(|body| body.names(wanted))
    }
}

fn check_statuses(HttpStatuses { done, gone, retry }: &HttpStatuses) -> Result<(), String> {
    let mut all: Vec<u16> = [done.as_slice(), gone, retry].concat();
    if let Some(wrong) = all.iter().find(|code| !(200..=599).contains(*code)) {
        return Err(format!("{wrong} is not a status of a response"));
    }
    all.sort_unstable();
    match all.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("status {} has two meanings", pair[0])),
        None => Ok(()),
    }
}

fn without_metadata(template: Template) -> Result<Template, String> {
    match template.names(&Field::Metadata) {
        true => Err("${metadata} can only stand in the body; name one key: ${metadata['<key>']}".to_owned()),
        false => Ok(template),
    }
}

/// Parses a path with its query.
///
/// # Errors
/// Fails with a message for people if it is not one.
pub(super) fn path(text: &str, scope: Scope) -> Result<Template, String> {
    let wrong = |reason: &str| format!("path {text:?}: {reason}");
    let template = Template::parse(text, scope).and_then(without_metadata).map_err(|error| wrong(&error))?;
    let literal = |part: &Part| match part {
        Part::Text(text) => text.clone(),
        Part::Field(_) => "x".to_owned(),
    };
    let sample: String = template.parts.iter().map(literal).collect();
    if !matches!(template.parts.first(), Some(Part::Text(text)) if text.starts_with('/')) {
        return Err(wrong("it must begin with '/'"));
    }
    if sample.contains('#') || format!("http://host{sample}").parse::<Uri>().is_err() {
        return Err(wrong("it is not the path of a URL; escape other characters with '%'"));
    }
    Ok(template)
}

/// Returns a path with its query. Fields are percent-encoded. In the path they cannot be empty: without a name, the path
/// is that of something else.
///
/// # Errors
/// Fails with a message for people if a field is missing, or must not stand where it is named.
pub(super) fn fill_path(template: &Template, subject: Subject<'_>) -> Result<String, String> {
    let mut filled = String::new();
    for part in &template.parts {
        match part {
            Part::Text(text) => filled.push_str(text),
            Part::Field(placeholder) => {
                let text = placeholder.text(subject)?;
                let name = placeholder.name();
                if text.is_empty() && !filled.contains('?') {
                    return Err(format!("{name} is empty; use ${{{name}:-<default>}} in the path"));
                }
                filled.push_str(&escaped(&text));
            }
        }
    }
    let path = filled.split('?').next().unwrap_or_default();
    if path.split('/').any(|segment| matches!(segment, "." | "..")) {
        return Err(format!("the path {path:?} leads to another one"));
    }
    Ok(filled)
}

#[cfg(test)]
mod tests;
