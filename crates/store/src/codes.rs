//! Failure codes that the stores share, or share with the sources and the engine.

pub(crate) use honeyflow_hive::codes::MISSING_TABLE;
pub(crate) use honeyflow_runtime::codes::MISPLACED_REPLY;

honeyflow_runtime::codes! {
    BAD_JSON = "bad-json" [Reject]
        "A column that is listed in `json` holds a text that is not JSON.",
        "Correct the value in the row, or remove the column from `json`.";
    BAD_PARAMETERS = "bad-parameters" [Fatal]
        "A statement of the configuration has parameters other than `$keys`.",
        "Remove them: `$keys` is the only parameter that a statement may use.";
    BAD_STATEMENT = "bad-statement" [Fatal]
        "The database does not accept a statement of the configuration.",
        "Correct the statement; `honeyflow check` shows the place.";
    CONSTRAINT = "constraint" [Fatal]
        "A write violates a constraint of the database.",
        "Look for constraints or triggers that were added to Honeyflow's tables by hand.";
    KEY_TOO_LONG = "key-too-long" [Reject]
        "The key of an event is longer than a key may be.",
        "Use a shorter key; the message shows the limit.";
    KEY_TYPE = "key-type" [Fatal]
        "A column cannot be a key, because of its type or its values.",
        "Name another key column, or change the column as the message says.";
    MISSING_COLUMN = "missing-column" [Fatal]
        "A column that Honeyflow or a statement of the configuration uses does not exist.",
        "Wait for the end of a migration, or correct the column's name.";
    NO_KEY_COLUMN = "no-key-column" [Fatal]
        "The result of a statement does not have each column of the entity's key exactly once.",
        "Select every key column once.";
    NO_KEYS = "no-keys" [Fatal]
        "A statement does not use `$keys`, so it would read the whole table for every batch.",
        "Write for example `… where id in $keys`.";
    NOT_CAPTURABLE = "not-capturable" [Fatal]
        "The changes of a view, of a table without any key, or of a kind of table that has no triggers of its own cannot be captured.",
        "Do what the message says: name the tables that a view reads as edges, or name the table's key.";
    NOT_A_NUMBER = "not-a-number" [Reject]
        "A row holds NaN or infinity, which JSON cannot represent.",
        "Correct the value in the row, or convert it in the statement.";
    OUTBOX_NOT_EMPTY = "outbox-not-empty" [Reject]
        "Events are left in the outbox, so the source is not uninstalled.",
        "Let a node finish them, or uninstall with `--force` and lose them.";
    STORE_ERROR = "store-error" [Retry]
        "The database answered with an error that has no code of its own.",
        "Read the message: it contains the text of the database.";
    STORE_STOPPED = "store-stopped" [Retry]
        "A thread or task of the store has ended, because the node is stopping or restarts the store.",
        "Nothing: a running node opens the store again.";
    TWO_ROWS = "two-rows" [Reject]
        "A statement returns two rows for one key.",
        "Group the rows, or remove a join.";
    TWO_STATEMENTS = "two-statements" [Fatal]
        "A key of the configuration holds more than one SQL statement.",
        "Write one statement, without `;` inside.";
    UNREADABLE_PAYLOAD = "unreadable-payload" [Reject]
        "The payload of an event is not what its kind requires.",
        "Correct the program that writes into the outbox, then drop the parked event and send it again.";
}
