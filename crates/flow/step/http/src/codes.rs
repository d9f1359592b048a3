//! Failure codes of `http.call`, and the shared ones that it uses.

pub(crate) use honeyflow_runtime::codes::{OUTPUT_TOO_LARGE, REFUSED};
pub(crate) use honeyflow_step::codes::NOT_REACHED;

honeyflow_runtime::codes! {
    ADDRESS_REFUSED = "address-refused" [Retry]
        "The host of the URL has only addresses that the step may not call, such as private networks.",
        "Correct the URL, or allow the network with `allow-networks`.";
    BAD_REQUEST = "bad-request" [Reject]
        "No valid request can be made from this item.",
        "Correct the step's settings or the data.";
    BAD_URL_VALUE = "bad-url-value" [Reject]
        "A value makes the URL invalid, leads to another host, or is empty or dots in the path.",
        "Correct the data or the placeholder.";
    BROKEN_ANSWER = "broken-answer" [Retry]
        "The server's answer broke off, or is not what its headers say; whether the server acted is unknown.",
        "Nothing: the call is repeated with the same Idempotency-Key. If it lasts, look at the server's log.";
    EXPRESSION_FAILED = "expression-failed" [Reject]
        "A placeholder of the URL or the expression of the body failed for this item.",
        "Correct the expression or the data.";
    NOT_TEXT = "not-text" [Reject]
        "The answer is neither JSON nor text in UTF-8.",
        "Call an address that answers with JSON or text.";
    REDIRECTED = "redirected" [Reject]
        "The server answered with a redirect, which is not followed.",
        "Write the final URL.";
    REJECTED = "rejected" [Reject]
        "The server refused the request with a 4xx status.",
        "Read the status in the message; correct the data or the step, then retry the parked event.";
    REQUEST_TOO_LARGE = "request-too-large" [Reject]
        "The body of the request is larger than the limit.",
        "Send less.";
    SERVER_ERROR = "server-error" [Retry]
        "The server answered that it cannot serve the request now (408, 425 or 5xx).",
        "Repair the server: the call is tried again.";
    TIMEOUT = "timeout" [Retry]
        "There was no complete answer within the step's `timeout`.",
        "Check the server, or raise `timeout`; the call is tried again with the same Idempotency-Key.";
    TOLD_TO_WAIT = "told-to-wait" [RetryAfter]
        "The server asked to wait (429, or the header Retry-After).",
        "Nothing: the call is tried again after that time. A `limit` on the step avoids it.";
    UNREACHABLE = "unreachable" [Retry]
        "The server cannot be reached.",
        "Check that it is up and the URL right; the call is tried again.";
    URL_TOO_LONG = "url-too-long" [Reject]
        "The URL with its values is longer than the limit.",
        "Send the data in the body.";
}
