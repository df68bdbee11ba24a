use serde_json::json;

use super::*;

fn lease(name: &str, holder: &str, renewed: u64) -> Lease {
    let spec =
        json!({"holderIdentity": holder, "renewTime": format!("2026-01-01T00:{renewed:02}:00.000000Z")});
    let metadata = json!({"name": name, "resourceVersion": renewed.to_string()});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

/// Returns the membership of `a`, which has seen its own Lease and one of `b`, and the members.
fn joined() -> (Joining, watch::Receiver<Members>) {
    // It may be installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    let (sender, members) = watch::channel(Members::from([]));
    let membership = Membership {
        client: client.clone(),
        namespace: "podward-system".to_owned(),
        name: "a".to_owned(),
        members: sender,
        tenure: Arc::default(),
        metrics: Arc::default(),
    };
    let mut joining = Joining::new(membership, Api::namespaced(client, "podward-system"));
    joining.list([lease("s0", "a", 1), lease("s1", "b", 1)]);
    (joining, members)
}

impl Joining {
    fn list(&mut self, leases: impl IntoIterator<Item = Lease>) {
        self.seen(Ok(Event::Init));
        leases.into_iter().for_each(|lease| self.seen(Ok(Event::InitApply(lease))));
        self.seen(Ok(Event::InitDone));
    }

    fn renew(&mut self, minute: u64) {
        self.written(Written { begin: Instant::now(), holds: true, result: Ok(lease("s0", "a", minute)) });
    }

    /// Lets time pass, without a report of the watch.
    fn pass(&mut self, seconds: u64) {
        self.start = self.start.checked_sub(Duration::from_secs(seconds)).unwrap();
    }

    fn is_member(&mut self, members: &watch::Receiver<Members>, name: &str) -> bool {
        self.publish();
        members.borrow().iter().any(|member| member == name)
    }
}

#[tokio::test]
async fn a_silent_watch_does_not_end_the_membership_of_others() {
    let (mut joining, members) = joined();
    // This replica renews its own Lease with other connections.
    for minute in 2..6 {
        joining.pass(3);
        joining.renew(minute);
        assert!(joining.is_member(&members, "b"), "after {} s", (minute - 1) * 3);
    }
    assert!(joining.wants_new_watch(), "only a list shows whether b has left");
    assert!(!joining.wants_new_watch(), "it is under way");
    assert!(joining.is_member(&members, "b"));
    joining.list([lease("s0", "a", 5), lease("s1", "b", 4)]);
    assert!(joining.is_member(&members, "b"), "it has renewed its Lease");

    joining.pass(12);
    assert!(joining.wants_new_watch());
    joining.list([lease("s0", "a", 5), lease("s1", "b", 4)]);
    assert!(!joining.is_member(&members, "b"), "it has not");
    joining.pass(60);
    assert!(!joining.wants_new_watch());
}

#[tokio::test]
async fn a_watch_that_does_not_report_a_renewal_is_started_again() {
    let (mut joining, members) = joined();
    joining.seen(Ok(Event::Delete(lease("s1", "b", 1))));
    joining.pass(4);
    joining.renew(2);
    joining.seen(Ok(Event::Apply(lease("s0", "a", 2))));
    joining.pass(4);
    assert!(!joining.wants_new_watch());
    joining.renew(3);
    joining.pass(4);
    assert!(joining.wants_new_watch());
    joining.list([lease("s0", "a", 3), lease("s2", "c", 1)]);
    assert!(joining.is_member(&members, "c"), "it has come while the watch was silent");
}
