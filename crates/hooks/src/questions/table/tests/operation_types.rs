//! Checks of operations whose type changes.

use super::*;

/// An operator writes another type for the same id, and the label with the time of the check stays.
#[test]
fn the_answer_to_a_check_is_not_used_for_another_type_of_operation() {
    let operation = |id: &str, type_: &str| (id.to_owned(), type_.to_owned());
    for phase in [HookPhase::PreCheck, HookPhase::PostCheck] {
        let about = |operations: &[(String, String)]| {
            [HookQuestion { operations: operations.to_vec(), ..question_in(phase, 1) }]
        };
        let update = about(&[operation("c", "update")]);
        let scale_in = about(&[operation("c", "scale-in")]);
        for is_answered in [true, false] {
            let mut fixture = Fixture::with("lb");
            fixture.ask("u", &update);
            let old = fixture.call("lb").unwrap();
            if is_answered {
                fixture.end("lb", &old, done());
            }
            assert_eq!(fixture.table.answer("u", &scale_in[0]), None, "{phase:?} {is_answered}");
            fixture.ask("u", &scale_in);
            let new = fixture.call("lb").expect("it is called again");
            assert_eq!(new.request.operations[0].r#type, "scale-in");
            assert!(old.cancelled.is_cancelled());
            if !is_answered {
                fixture.end("lb", &old, done());
            }
            let answer = fixture.table.answer("u", &scale_in[0]);
            assert_eq!(answer, Some(HookAnswer::Open { message: String::new() }), "{phase:?} {is_answered}");
            fixture.end("lb", &new, done());
            assert!(matches!(fixture.table.answer("u", &scale_in[0]), Some(HookAnswer::Done(_))));
        }
        // An operation that is not checked any more changes nothing for the other one.
        let mut fixture = Fixture::with("lb");
        fixture.ask("u", &about(&[operation("c", "update"), operation("d", "update")]));
        let call = fixture.call("lb").unwrap();
        fixture.end("lb", &call, done());
        for is_closed_before in [false, true] {
            if is_closed_before {
                fixture.ask("u", &[]);
            }
            fixture.ask("u", &update);
            assert!(fixture.call("lb").is_none(), "{phase:?} {is_closed_before}");
            assert!(matches!(fixture.table.answer("u", &update[0]), Some(HookAnswer::Done(_))));
        }
        // It was not asked about this one.
        fixture.ask("u", &about(&[operation("c", "update"), operation("e", "update")]));
        assert_eq!(fixture.call("lb").unwrap().request.operations.len(), 2);
    }
}
