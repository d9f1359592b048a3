use super::*;
use crate::value::CellContent;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::wire::{Column, Field, UserType};

fn bytes(value: &impl Bind, kind: &Type) -> Vec<u8> {
    let mut out = Vec::new();
    assert_eq!(value.bind(kind, &mut out), Ok(CellContent::Bytes));
    out
}

#[test]
fn a_value_that_does_not_fit_its_column_is_refused_before_it_is_sent() {
    let column =
        |name: &str, kind: Type| Column { keyspace: "k".into(), table: "t".into(), name: name.to_owned(), kind };
    let columns = [column("id", Type::Int), column("title", Type::Text)];
    assert_eq!(bind_all(&(1_i32, "x"), &columns).unwrap().bytes, b"\0\0\0\x04\0\0\0\x01\0\0\0\x01x");
    assert_eq!(bind_all(&(1_i32, None::<&str>), &columns).unwrap().bytes[8..], [0xff; 4]);
    assert_eq!(bind_all(&(1_i32, Unset), &columns).unwrap().bytes[8..], [0xff, 0xff, 0xff, 0xfe]);
    let error = bind_all(&(1_i64, "x"), &columns).unwrap_err().to_string();
    assert_eq!(error, "column id: i64 does not fit int");
    assert_eq!(bind_all(&(1_i32,), &columns), Err(ValueMismatch::Count { wanted: 2, given: 1 }));
}

#[test]
fn whole_numbers_of_any_size_are_as_short_as_can_be() {
    for (number, bytes) in
        [(0, &[0][..]), (127, &[127]), (128, &[0, 128]), (-1, &[255]), (-128, &[128]), (-129, &[255, 127])]
    {
        assert_eq!(Varint::from(number).0, bytes);
    }
    for number in [0, 1, -1, 255, 256, -256, i64::MAX, i64::MIN] {
        assert_eq!(Varint::from(number).as_i64(), Some(number));
    }
    assert_eq!(Varint(vec![1; 9]).as_i64(), None);
    assert_eq!(Varint(vec![]).as_i64(), None);
}

#[test]
fn collections_hold_no_null() {
    let kind = Type::List(Box::new(Type::Int));
    assert_eq!(bytes(&vec![1_i32, 2], &kind), [0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 2]);
    assert_eq!(vec![Some(1_i32), None].bind(&kind, &mut Vec::new()), Err(ValueMismatch::NullInside));
    let map = Type::Map(Box::new((Type::Text, Type::Int)));
    let given = BTreeMap::from([("a", 1_i32)]);
    let read = BTreeMap::<String, i32>::read(&map, Some(&bytes(&given, &map))).unwrap();
    assert_eq!(read, BTreeMap::from([("a".to_owned(), 1)]));
    assert_eq!(BTreeMap::<String, i32>::read(&map, None), Ok(BTreeMap::new()));
}

#[test]
fn a_vector_has_exactly_its_elements() {
    let kind = Type::Vector(Box::new(Type::Float), 2);
    let cell = bytes(&vec![1.5_f32, -2.0], &kind);
    assert_eq!(cell.len(), 8);
    assert_eq!(Vec::<f32>::read(&kind, Some(&cell)), Ok(vec![1.5, -2.0]));
    assert!(Vec::<f32>::read(&kind, Some(&cell[..7])).is_err());
    assert!(vec![1.0_f32].bind(&kind, &mut Vec::new()).is_err());
}

#[test]
fn fields_that_a_type_got_later_are_null_in_older_cells() {
    let field = |name: &str| Field { name: name.into(), kind: Type::Int };
    let of = UserType { keyspace: "k".to_owned(), name: "u".to_owned(), fields: vec![field("a"), field("b")] };
    let kind = Type::User(Arc::new(of));
    let old = [0, 0, 0, 4, 0, 0, 0, 9];
    let read = Value::read(&kind, Some(&old)).unwrap();
    assert_eq!(read, Value::User(vec![("a".into(), Value::Int(9))]));
    assert_eq!(bytes(&read, &kind), [&old[..], &[255; 4]].concat(), "and written as such");
    // Fields are matched by name, and a missing field is null.
    let given = Value::User(vec![("b".into(), Value::Int(9))]);
    assert_eq!(bytes(&given, &kind), [255, 255, 255, 255, 0, 0, 0, 4, 0, 0, 0, 9]);
    let unknown = Value::User(vec![("c".into(), Value::Int(9))]);
    assert_eq!(unknown.bind(&kind, &mut Vec::new()), Err(ValueMismatch::NoColumn("c".to_owned())));
}

#[test]
fn parts_that_a_tuple_does_not_have_are_null() {
    let kind = Type::Tuple(vec![Type::Int, Type::Int]);
    let short = [0, 0, 0, 4, 0, 0, 0, 9];
    let read = Value::read(&kind, Some(&short)).unwrap();
    assert_eq!(read, Value::Tuple(vec![Value::Int(9)]));
    assert_eq!(bytes(&read, &kind), [&short[..], &[255; 4]].concat(), "and written as such");
    let more = Value::Tuple(vec![Value::Int(9); 3]);
    assert_eq!(more.bind(&kind, &mut Vec::new()), Err(ValueMismatch::Count { wanted: 2, given: 3 }));
}

/// CQ-7: a list of 1000 empty tuples, or of tuples with one part, does not create the other parts of their type.
#[test]
fn cq_7_missing_parts_take_no_memory() {
    let field = |at: usize| Field { name: format!("f{at}").into(), kind: Type::Int };
    let user = |fields: usize| {
        let fields = (0..fields).map(field).collect();
        Type::User(Arc::new(UserType { keyspace: "k".to_owned(), name: "u".to_owned(), fields }))
    };
    let list = |kind: Type, element: &[u8], count: u32| {
        let length = u32::try_from(element.len()).unwrap().to_be_bytes();
        let element = [&length[..], element].concat();
        let cell = [&count.to_be_bytes()[..], &element.repeat(count as usize)].concat();
        Value::read(&Type::List(Box::new(kind)), Some(&cell))
    };
    for parts in [1, 30, 1000, 65_535] {
        let (tuple, user) = (Type::Tuple(vec![Type::Int; parts]), user(parts));
        assert_eq!(list(tuple.clone(), &[], 1000), Ok(Value::List(vec![Value::Null; 1000])), "{parts}");
        let grown = Value::Tuple(vec![Value::Int(7)]);
        let one = [0, 0, 0, 4, 0, 0, 0, 7];
        assert_eq!(list(tuple, &one, 1000), Ok(Value::List(vec![grown; 1000])), "{parts}");
        let grown = Value::User(vec![("f0".into(), Value::Int(7))]);
        assert_eq!(list(user, &one, 1000), Ok(Value::List(vec![grown; 1000])), "{parts}");
    }
}

#[test]
fn cq_7_cells_of_the_wrong_length_are_errors() {
    for kind in [Type::Int, Type::Bigint, Type::Uuid, Type::Inet, Type::Boolean, Type::Decimal, Type::Double] {
        assert!(Value::read(&kind, Some(&[1; 3])).is_err(), "{kind}");
        assert_eq!(Value::read(&kind, Some(&[])), Ok(Value::Null), "{kind}");
    }
    let list = Type::List(Box::new(Type::Int));
    assert!(Value::read(&list, Some(&[0x7f, 0xff, 0xff, 0xff])).is_err());
    assert!(Value::read(&list, Some(&[0xff, 0xff, 0xff, 0xff])).is_err());
    assert!(i32::read(&Type::Int, Some(&[1; 3])).is_err());
    assert_eq!(i32::read(&Type::Int, None), Err(ValueMismatch::Null));
    assert_eq!(Option::<i32>::read(&Type::Int, None), Ok(None));
    assert!(<&str>::read(&Type::Text, Some(&[0xff])).is_err());
}
