//! What is wrong with an answer.

/// Why an answer can't be used. The text contains nothing of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerProblem {
    /// The body is not JSON.
    #[error("it can't be understood: it is not JSON")]
    NotJson,
    /// The body is JSON, but no object.
    #[error("it can't be understood: it is no JSON object")]
    NoObject,
    /// A field has another type.
    #[error("it can't be understood: {field} is {problem}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it is not, as in "not true or false".
        problem: &'static str,
    },
    /// The id of the task is too long.
    #[error("the id of its task is longer than {0} bytes")]
    LongTaskId(usize),
    /// A task runs, and the answer does not say which one.
    #[error("it wants to be polled, and names no task")]
    NoTaskId,
    /// A task runs, and the rule does not say where to poll.
    #[error("it wants to be polled, and the rule has no clientConfig.poll")]
    NoPoll,
}
