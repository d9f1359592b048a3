//! Types without a code, which the server sends as the name of its class: vectors, and durations with version 4.

use super::kind::Type;

const MARSHAL: &str = "org.apache.cassandra.db.marshal.";
/// How deep vectors may nest; real data has no deeper vectors.
const DEPTH_MAX: usize = 4;

/// Classes of elements with a fixed length; all other classes stay custom.
const ELEMENTS: &[(&str, Type)] = &[
    ("FloatType", Type::Float),
    ("DoubleType", Type::Double),
    ("Int32Type", Type::Int),
    ("LongType", Type::Bigint),
    ("ShortType", Type::Smallint),
    ("ByteType", Type::Tinyint),
    ("BooleanType", Type::Boolean),
    ("UUIDType", Type::Uuid),
    ("TimeUUIDType", Type::Timeuuid),
    ("TimestampType", Type::Timestamp),
];

pub fn type_of_class(class: &str) -> Type {
    if class.strip_prefix(MARSHAL) == Some("DurationType") {
        return Type::Duration;
    }
    vector(class, DEPTH_MAX).unwrap_or_else(|| Type::Custom(class.to_owned()))
}

fn vector(class: &str, depth: usize) -> Option<Type> {
    let name = class.trim().strip_prefix(MARSHAL)?;
    if let Some((_, element)) = ELEMENTS.iter().find(|(element, _)| *element == name) {
        return (depth < DEPTH_MAX).then(|| element.clone());
    }
    let inside = name.strip_prefix("VectorType(")?.strip_suffix(')')?;
    let (of, count) = inside.rsplit_once(',')?;
    let of = vector(of, depth.checked_sub(1)?)?;
    let kind = Type::Vector(Box::new(of), count.trim().parse().ok().filter(|count| *count > 0)?);
    kind.fixed_bytes().is_some().then_some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_vectors_are_read() {
        let class = |inside: &str| type_of_class(&format!("{MARSHAL}VectorType({MARSHAL}{inside})"));
        assert_eq!(class("FloatType , 3"), Type::Vector(Box::new(Type::Float), 3));
        assert_eq!(class(&format!("VectorType({MARSHAL}Int32Type,2),4")).to_string(), "vector<vector<int, 2>, 4>");
    }

    #[test]
    fn version_4_has_durations_too() {
        assert_eq!(type_of_class(&format!("{MARSHAL}DurationType")), Type::Duration);
    }

    #[test]
    fn cq_7_other_classes_stay_custom() {
        let huge = format!("{MARSHAL}VectorType({MARSHAL}FloatType,{})", usize::MAX);
        let deep = format!("{}{MARSHAL}FloatType{}", format!("{MARSHAL}VectorType(").repeat(9), ",2)".repeat(9));
        let text = format!("{MARSHAL}VectorType({MARSHAL}UTF8Type,2)");
        let none = format!("{MARSHAL}VectorType({MARSHAL}FloatType,0)");
        let alone = format!("{MARSHAL}FloatType");
        for class in [&huge, &deep, &text, &none, &alone, "", "x", "VectorType("] {
            assert_eq!(type_of_class(class), Type::Custom(class.to_owned()));
        }
    }
}
