//! Refusals: answers with an error, by their HTTP status.

honeyflow_runtime::codes! {
    u16;
    BACKLOG_FULL = "backlog-full" [429]
        "Too many events of the source wait; nothing was stored.",
        "Send the events again later.";
    BAD_COMMAND = "bad-command" [400]
        "The body is not a command for a pool.",
        "Send for example `{\"pool\": \"NAME\", \"command\": \"drain\"}`.";
    BAD_EVENT = "bad-event" [400]
        "An event of the request is not valid.",
        "Correct the field that the message names.";
    BAD_IDEMPOTENCY_KEY = "bad-idempotency-key" [400]
        "The header Idempotency-Key is empty, too long, given twice or not visible ASCII.",
        "Use for example a UUID.";
    BAD_JSON = "bad-json" [400]
        "The body is not JSON in UTF-8.",
        "Correct the body.";
    BAD_LIMIT = "bad-limit" [400]
        "The parameter `limit` is not a number within the allowed range.",
        "Use a number that the message allows.";
    BAD_QUERY = "bad-query" [400]
        "The search query cannot be read.",
        "Correct the query as the message says.";
    BAD_QUERY_STRING = "bad-query-string" [400]
        "The query string of the URL cannot be read.",
        "Encode its values as in a form.";
    BODY_BROKEN = "body-broken" [400]
        "The body broke off before its end.",
        "Send the request again.";
    BODY_TOO_LARGE = "body-too-large" [413]
        "The body is larger than the limit.",
        "Send fewer events at once, or put large data into the database and send its key.";
    BODY_TOO_SLOW = "body-too-slow" [408]
        "The body did not arrive in time.",
        "Send the request again over a faster connection.";
    BUSY = "busy" [503]
        "The node reads too many request bodies at once; nothing was stored.",
        "Send the request again after the time in Retry-After.";
    COMPRESSED_BODY = "compressed-body" [415]
        "The body is compressed, which is not supported.",
        "Send it uncompressed.";
    FOREIGN_HOST = "foreign-host" [403]
        "The header Host names a host that is not this node.",
        "Use the address on which the node listens, such as 127.0.0.1, with its port.";
    FOREIGN_ORIGIN = "foreign-origin" [403]
        "The request comes from a page of another origin.",
        "Use the node's own page, or a program outside a browser.";
    HEADERS_TOO_LARGE = "headers-too-large" [431]
        "The headers of the request are larger than the limit.",
        "Send smaller headers.";
    IDEMPOTENCY_CONFLICT = "idempotency-conflict" [409]
        "The Idempotency-Key was used before with another body.",
        "Use a new key for a new request.";
    INTERNAL = "internal" [500]
        "The node could not write its answer: a bug in Honeyflow.",
        "Report it with the log line that has the id of the answer.";
    LIMIT = "limit" [429]
        "The limit of the event endpoint is used up; nothing was stored.",
        "Send the request again after the time in Retry-After.";
    METHOD_NOT_ALLOWED = "method-not-allowed" [405]
        "The path does not answer this method.",
        "Use the method in the header Allow.";
    NO_EVENTS = "no-events" [400]
        "The request contains no event.",
        "Send at least one event.";
    NO_SINK = "no-sink" [404]
        "This node has no sink that can be searched.",
        "Ask a node that has an index.";
    NOT_FOUND = "not-found" [404]
        "There is no such path.",
        "Correct the path; paths are compared exactly.";
    PAYLOAD_TOO_LARGE = "payload-too-large" [413]
        "The payload of an event is larger than the limit.",
        "Put large data into the database and send its key.";
    REPEATED_PARAMETER = "repeated-parameter" [400]
        "A query parameter is given twice.",
        "Give it once.";
    SINK_MISSING = "sink-missing" [400]
        "There are several sinks, and the request names none.",
        "Add the parameter `sink`.";
    SINK_UNAVAILABLE = "sink-unavailable" [503]
        "The sink did not answer the search.",
        "Send the request again; the log shows the reason under the id of the answer.";
    STORE_UNAVAILABLE = "store-unavailable" [503]
        "The source's store did not store the events.",
        "Send the request again, with the same Idempotency-Key; the log shows the reason under the id of the answer.";
    TOO_DEEP = "too-deep" [400]
        "The JSON is nested too deep.",
        "Send flatter data.";
    TOO_MANY_EVENTS = "too-many-events" [400]
        "The request has more events than allowed.",
        "Send several requests.";
    TOO_MANY_MEMBERS = "too-many-members" [400]
        "The JSON has more members than allowed.",
        "Send less data at once.";
    TOO_MANY_PARAMETERS = "too-many-parameters" [400]
        "The URL has more query parameters than allowed.",
        "Send fewer parameters.";
    TOO_MANY_WATCHERS = "too-many-watchers" [503]
        "Too many pages are watching this node.",
        "Close some pages.";
    UNKNOWN_PARAMETER = "unknown-parameter" [400]
        "There is no such query parameter.",
        "Correct its name; the hint shows the known ones.";
    UNKNOWN_POOL = "unknown-pool" [404]
        "This node has no pool with this name.",
        "Correct the name; the hint shows the known ones.";
    UNKNOWN_SINK = "unknown-sink" [400]
        "This node has no sink with this name.",
        "Correct the name; the hint shows the known ones.";
    URL_TOO_LONG = "url-too-long" [414]
        "The URL is longer than the limit.",
        "Use a shorter URL.";
}
