use super::super::packets::Stat;
use super::*;

fn provider(name: &str, created: i64, is_ephemeral: bool) -> Provider {
    let url = DubboUrl::decode(name).unwrap();
    let stat = Stat { created, modified: created, version: 0, is_ephemeral };
    Provider { name: name.to_owned(), url, stat }
}

fn overrides(url: &str) -> Urls {
    vec![(encoded(url), DubboUrl::decode(url).unwrap())]
}

#[test]
fn the_urls_at_one_address_are_one_instance() {
    let one = provider("dubbo://10.0.0.7:20880/a.B?version=1&release=2.7.8", 3, true);
    let two = provider("dubbo://10.0.0.7:20880/a.B?version=2&disabled=true&weight=50", 4, true);
    let found = merged(&[&one, &two], &Vec::new()).unwrap();
    assert_eq!((found.id.as_str(), found.in_service), ("10.0.0.7:20880", true));
    assert_eq!(found.version, Some(version([&two, &one])));
    assert_ne!(found.version, Some(version([&one])));
    let found = merged(&[&two], &Vec::new()).unwrap();
    assert_eq!((found.in_service, found.weight), (false, 0.5));
    assert_eq!(found.metadata.keys().collect::<Vec<_>>(), ["version"]);
}

#[test]
fn an_override_counts_where_all_consumers_apply_it() {
    for (parameters, expected) in
        [("", false), ("release=3.2.0", false), ("version=1", false), ("version=1&release=3.2.0", true)]
    {
        let provider = provider(&format!("dubbo://10.0.0.7:20880/a.B?{parameters}"), 3, true);
        let disabling = overrides(&DubboUrl::disabling(&provider.url, "a.B").to_string());
        assert_eq!(merged(&[&provider], &disabling).unwrap().in_service, expected, "{parameters}");
        assert!(merged(&[&provider], &Vec::new()).unwrap().in_service);
    }
}

#[test]
fn the_last_provider_of_a_service_is_known() {
    let url = |port: u16, parameters: &str| {
        DubboUrl::decode(&format!("dubbo://10.0.0.7:{port}/a.B?{parameters}")).unwrap()
    };
    let subject = url(20880, "version=1");
    let none = Vec::new();
    for (others, expected) in [
        (vec![], true),
        (vec![url(20881, "version=1")], false),
        (vec![url(20881, "version=1&disabled=true")], true),
        // Another service, and the same address.
        (vec![url(20881, "version=2"), url(20881, ""), url(20880, "version=1&weight=5")], true),
    ] {
        let mut all: Urls = others.into_iter().map(|url| (url.encode(), url)).collect();
        all.push((subject.encode(), subject.clone()));
        assert_eq!(is_last(&subject, &all, &none), expected, "{all:?}");
        // What is out of service already is not the last one in service.
        assert!(!is_last(&url(20880, "version=1&disabled=true"), &all, &none));
    }
}
