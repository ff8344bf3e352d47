//! Messages for the API server's errors, with a remedy.

use kube::runtime::watcher;
use qosm_model::problem::{Problem, chain};

/// The resource version has expired: the objects are listed again.
const GONE: u16 = 410;

/// The problem of a failing watch; `None` if its resource version has expired, which is normal.
pub(super) fn of_watch(what: &str, error: &watcher::Error) -> Option<Problem> {
    let message = match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => {
            if is_gone(error) {
                return None;
            }
            explain(error)
        }
        watcher::Error::WatchError(status) if status.code == GONE => return None,
        watcher::Error::WatchError(status) => answered(status.code, &status.message),
        watcher::Error::NoResourceVersion => "the API server's answer has no resourceVersion".to_owned(),
    };
    let message = format!("{message}; what was last known counts on");
    Some(Problem { object: format!("watch of {what}"), field: None, message })
}

fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == GONE)
}

/// The message for an error of the API server or the connection, with a remedy.
pub fn explain(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => answered(status.code, &status.message),
        error => format!("the API server does not answer: {}", chain(error)),
    }
}

fn answered(code: u16, message: &str) -> String {
    let way_out = match code {
        401 => {
            ": the token is not taken; it may have expired, or the clocks of node and API server may differ. A service account's \
             token is read again each minute"
        }
        403 => {
            ": the service account lacks this verb; apply the ClusterRole and Role that come with this version of qosm"
        }
        404 => ": if it is a kind of qosm.io, its CRD is not installed; `qosm crds | kubectl apply --server-side -f -`",
        429 => ": the API server is busy; it is asked again later",
        _ => "",
    };
    format!("the API server answers {code}, {message}{way_out}")
}
