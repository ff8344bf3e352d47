//! Which identities are accepted, and where a password is sent.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use qosm_registry::RegistryError;

use crate::artefact::{Artefact, noise};
use crate::fault::Fault;
use crate::node::{Node, message};
use crate::registry::{Login, Registry};

const HERE: &str = "http://HOST/token";

fn policy() -> Artefact {
    Artefact::policy(&noise(1, 1000))
}

fn config(key: &str, account: &str) -> String {
    format!(r#"{{"auths":{{"{key}":{{"auth":"{}"}}}}}}"#, STANDARD.encode(account))
}

/// Docker's file with one account in it.
fn login(node: &mut Node, registry: &str, account: &str) -> PathBuf {
    let path = node.folder().join("config.json");
    fs::write(&path, config(registry, account)).unwrap();
    node.settings.credentials = vec![path.clone()];
    path
}

async fn beside(login: Login) -> (Registry, Node, String) {
    let registry = Registry::start().await;
    registry.put("demo", "1", &policy());
    registry.admit(login);
    let (node, reference) = (Node::beside(&[&registry]), registry.named("demo:1"));
    (registry, node, reference)
}

#[tokio::test]
async fn a_token_that_everybody_gets_is_used_for_manifests_and_blobs() {
    let (registry, node, reference) = beside(Login::Token { realm: HERE.to_owned(), account: None }).await;
    node.check_pull(&reference, &policy()).await;
    for kind in ["manifests/", "blobs/"] {
        let brought: Vec<_> = registry.gets(kind).into_iter().map(|seen| seen.authorization).collect();
        assert!(!brought.is_empty());
        assert!(brought.iter().all(|seen| seen.as_deref() == Some("Bearer repository:demo:pull")), "{brought:?}");
    }
    let tokens = registry.gets("/token");
    assert_eq!((tokens.len(), tokens[0].authorization.clone()), (1, None));
}

#[tokio::test]
async fn a_password_goes_to_where_tokens_are_had_and_nowhere_else() {
    let account = Some(("joe", "secret"));
    let (registry, mut node, reference) = beside(Login::Token { realm: HERE.to_owned(), account }).await;
    login(&mut node, registry.host(), "joe:secret");
    node.check_pull(&reference, &policy()).await;
    let basic = format!("Basic {}", STANDARD.encode("joe:secret"));
    for seen in registry.seen() {
        let is_basic = seen.authorization.as_deref() == Some(&basic);
        assert_eq!(is_basic, seen.path.starts_with("/token"), "{seen:?}");
    }
}

const BEARER: &str = r#"Bearer realm="http://HOST/token",service="test""#;
const SCOPED: &str = r#"Bearer realm="http://HOST/token",service="test",scope="repository:demo:pull""#;

/// Distribution specification, "Authentication": any request may be challenged. RFC 9110, 11.6.1: by several challenges, in one line or in
/// several, and schemes have no letter case.
#[tokio::test]
async fn a_challenge_is_met_wherever_and_however_it_comes() {
    const BOTH: &str = r#"Basic realm="test", Bearer realm="http://HOST/token",service="test""#;
    for (lines, is_api_open, takes_password, has_account, is_good) in [
        (&[SCOPED][..], true, false, false, true),
        (&[SCOPED], true, false, true, true),
        (&[BEARER], true, false, false, true),
        (&["Basic realm=\"test\"", BEARER], false, false, false, true),
        (&["Basic realm=\"test\"", SCOPED], true, false, true, true),
        (&[BOTH], false, false, false, true),
        (&[BOTH], true, false, true, true),
        (&["BASIC realm=\"test\""], false, true, true, true),
        (&["BASIC realm=\"test\""], true, true, true, true),
        (&["BASIC realm=\"test\""], false, true, false, false),
        (&["Negotiate", "Bearer realm=\"ftp://HOST/\"", "Basic realm=\"test\""], true, true, true, true),
        (&["Bearer realm=\"http://HOST/v2/nowhere/manifests/1\"", "Basic realm=\"test\""], true, true, true, true),
        (&[], true, true, true, true),
        (&[], true, true, false, false),
        (&["Negotiate"], true, false, true, false),
    ] {
        let (registry, mut node, reference) = beside(Login::Challenged { lines, is_api_open, takes_password }).await;
        if has_account {
            login(&mut node, registry.host(), "joe:secret");
        }
        if is_good {
            node.check_pull(&reference, &policy()).await;
        } else {
            let error = node.refusal(&reference).await;
            assert!(matches!(error, RegistryError::Forbidden { status: 401, .. }), "{lines:?}: {error:?}");
        }
    }
}

#[tokio::test]
async fn a_password_is_not_sent_where_nobody_asks_for_it() {
    let (registry, mut node, reference) = beside(Login::Open).await;
    login(&mut node, registry.host(), "joe:secret");
    node.check_pull(&reference, &policy()).await;
    assert!(registry.seen().iter().all(|seen| seen.authorization.is_none()), "{:?}", registry.seen());
}

#[tokio::test]
async fn a_registry_that_refuses_for_ever_is_asked_twice() {
    let (registry, node, reference) = beside(Login::Token { realm: HERE.to_owned(), account: None }).await;
    let challenge = SCOPED.replace("HOST", registry.host());
    let again = Fault::Answer { status: 401, headers: vec![("www-authenticate", challenge)], body: String::new() };
    registry.wrong("manifests/", usize::MAX, again);
    let error = node.refusal(&reference).await;
    assert!(matches!(error, RegistryError::Forbidden { status: 401, .. }), "{error:?}");
    let asked = (registry.gets("manifests/").len(), registry.gets("/token").len());
    assert!(asked.0 <= 2 && asked.1 <= 2, "{asked:?}");
}

/// Requests to a redirect's target carry no credentials, not even after a challenge.
#[tokio::test]
async fn who_a_registry_redirects_to_cannot_ask_for_the_password() {
    for line in [SCOPED, "Basic realm=\"test\""] {
        let (registry, mut node, reference) = beside(Login::Basic("joe", "secret")).await;
        let shop = Registry::start().await;
        let challenge = line.replace("HOST", shop.host());
        login(&mut node, registry.host(), "joe:secret");
        let answer = Fault::Answer { status: 401, headers: vec![("www-authenticate", challenge)], body: String::new() };
        shop.wrong("blobs/", usize::MAX, answer);
        let part = policy().module_path();
        registry.wrong(&part, usize::MAX, Fault::redirect(format!("http://{}/v2/demo/{part}", shop.host())));
        node.refusal(&reference).await;
        let brought: Vec<_> = shop.seen().into_iter().filter(|seen| seen.authorization.is_some()).collect();
        assert!(brought.is_empty() && shop.gets("/token").is_empty(), "{:?}", shop.seen());
    }
}

#[tokio::test]
async fn who_is_not_let_in_is_told_as_whom_it_was_tried_and_to_log_in() {
    let token = Login::Token { realm: HERE.to_owned(), account: Some(("joe", "secret")) };
    for login_of_registry in [Login::Basic("joe", "secret"), token] {
        let (registry, mut node, reference) = beside(login_of_registry).await;
        let host = registry.host().to_owned();
        let anonymous = node.refusal(&reference).await;
        assert!(matches!(anonymous, RegistryError::Forbidden { status: 401, .. }), "{anonymous:?}");
        assert!(
            message(&anonymous).contains(&format!("refused anonymous (HTTP 401); log in with `docker login {host}`"))
        );

        let path = login(&mut node, &host, "joe:wrong");
        let other = message(&node.refusal(&reference).await);
        assert!(other.contains(&format!("refused `joe` of {} (HTTP 401)", path.display())), "{other}");
        assert!(!other.contains("wrong"), "the password is shown: {other}");

        login(&mut node, &host, "joe:secret");
        node.check_pull(&reference, &policy()).await;
    }
}

#[tokio::test]
async fn a_token_that_may_not_do_it_is_told_and_not_tried_again() {
    let (registry, node, reference) = beside(Login::Token { realm: HERE.to_owned(), account: None }).await;
    registry.wrong("manifests/", usize::MAX, Fault::status(403));
    let error = node.refusal(&reference).await;
    assert!(matches!(error, RegistryError::Forbidden { status: 403, .. }), "{error:?}");
    assert!(message(&error).contains("docker login"), "{error}");
    assert_eq!(registry.gets("manifests/").len(), 1);
    registry.mend();
    node.check_pull(&reference, &policy()).await;
}

#[tokio::test]
async fn a_folder_of_pull_secrets_is_read_as_kubernetes_projects_it() {
    let (registry, mut node, reference) = beside(Login::Basic("joe", "secret")).await;
    let secrets = node.folder().join("secrets");
    let real = secrets.join("pull/..2026_01_01");
    fs::create_dir_all(&real).unwrap();
    fs::write(real.join(".dockerconfigjson"), config(registry.host(), "joe:secret")).unwrap();
    symlink("..2026_01_01", secrets.join("pull/..data")).unwrap();
    symlink("..data/.dockerconfigjson", secrets.join("pull/.dockerconfigjson")).unwrap();
    node.settings.credentials = vec![secrets];
    node.check_pull(&reference, &policy()).await;
}

#[tokio::test]
async fn credentials_that_rotate_are_read_for_each_pull() {
    let (registry, mut node, reference) = beside(Login::Basic("joe", "secret")).await;
    let store = {
        login(&mut node, registry.host(), "joe:old");
        node.store()
    };
    let location = crate::node::location(&reference);
    store.pull(&location, None, false, &mut ()).await.unwrap_err();
    login(&mut node, registry.host(), "joe:secret");
    store.pull(&location, None, false, &mut ()).await.unwrap();
}

#[tokio::test]
async fn tokens_that_cannot_be_had_for_now_are_asked_for_again() {
    let (registry, node, reference) = beside(Login::Token { realm: HERE.to_owned(), account: None }).await;
    registry.wrong("/token", 1, Fault::status(503));
    registry.wrong("/token", 1, Fault::later(1));
    let begin = Instant::now();
    node.check_pull(&reference, &policy()).await;
    assert!(begin.elapsed() >= Duration::from_secs(1));
    assert_eq!(registry.gets("/token").len(), 3);
}

#[tokio::test]
async fn tokens_that_cannot_be_had_at_all_are_not_a_matter_of_logging_in() {
    let (registry, node, reference) = beside(Login::Token { realm: HERE.to_owned(), account: None }).await;
    registry.wrong("/token", usize::MAX, Fault::status(500));
    let error = node.refusal(&reference).await;
    assert!(matches!(error, RegistryError::Answer { status: 500, .. }), "{error:?}");
}

#[tokio::test]
async fn a_token_of_any_length_is_not_read_to_its_end() {
    let (registry, node, reference) = beside(Login::Token { realm: HERE.to_owned(), account: None }).await;
    let (endless, taken) = Fault::endless(200, false);
    registry.wrong("/token", usize::MAX, endless);
    node.refusal(&reference).await;
    let taken = taken.load(Ordering::Relaxed) >> 20;
    assert!(taken < 40, "{taken} MiB were taken");
}

#[tokio::test]
async fn a_token_that_is_none_is_refused() {
    for (status, body) in [(200, "<html>"), (200, "{}"), (200, r#"{"token":"two\r\nlines"}"#), (404, "")] {
        let (registry, node, reference) = beside(Login::Token { realm: HERE.to_owned(), account: None }).await;
        let answer = Fault::Answer { status, headers: Vec::new(), body: body.to_owned() };
        registry.wrong("/token", usize::MAX, answer);
        let error = node.refusal(&reference).await;
        assert!(
            message(&error).contains(&format!("HTTP {status} without a token at `http://{}/token`", registry.host()))
        );
        registry.mend();
        node.check_pull(&reference, &policy()).await;
    }
}

/// The address of the registry as 0.0.0.0: the kernel treats it as loopback, but qosm does not treat it as this machine.
fn elsewhere(registry: &Registry, node: &mut Node) -> String {
    let host = registry.host().replace("127.0.0.1", "0.0.0.0");
    node.settings.say(&host, true, None);
    login(node, &host, "joe:secret");
    host
}

#[tokio::test]
async fn a_registry_elsewhere_cannot_have_a_password_sent_to_this_node() {
    for realm in ["http://HOST/token", "http://localhost/token", "http://169.254.169.254/latest/meta-data", "ftp://x/"]
    {
        let account = Some(("joe", "secret"));
        let (registry, mut node, _) = beside(Login::Token { realm: realm.to_owned(), account }).await;
        let host = elsewhere(&registry, &mut node);
        let error = node.refusal(&format!("{host}/demo:1")).await;
        assert!(matches!(error, RegistryError::Realm { .. }), "{realm}: {error:?}");
        let brought: Vec<_> = registry.seen().into_iter().filter(|seen| seen.authorization.is_some()).collect();
        assert!(brought.is_empty() && registry.gets("/token").is_empty(), "{realm}: {brought:?}");
    }
}

#[tokio::test]
async fn a_registry_of_this_node_cannot_have_a_password_sent_to_its_networks_metadata_service() {
    let realm = "http://169.254.169.254/latest/meta-data".to_owned();
    let (_registry, node, reference) = beside(Login::Token { realm, account: None }).await;
    let error = node.refusal(&reference).await;
    assert!(matches!(error, RegistryError::Realm { .. }), "{error:?}");
}

#[tokio::test]
async fn a_registry_that_changes_its_mind_about_the_realm_is_not_believed_the_second_time() {
    let account = Some(("joe", "secret"));
    let (registry, mut node, _) = beside(Login::Token { realm: HERE.to_owned(), account }).await;
    let host = elsewhere(&registry, &mut node);
    registry.wrong("/v2/", 1, Fault::status(200));
    let good = r#"Bearer realm="https://auth.example.invalid/token""#.to_owned();
    registry.wrong(
        "/v2/",
        1,
        Fault::Answer { status: 401, headers: vec![("www-authenticate", good)], body: String::new() },
    );
    node.pull(&format!("{host}/demo:1")).await.unwrap_err();
    assert!(registry.gets("/token").is_empty(), "{:?}", registry.gets("/token"));
}
