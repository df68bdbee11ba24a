//! The traffic-controller: answers Podward's questions for Services.
#![forbid(unsafe_code)]
