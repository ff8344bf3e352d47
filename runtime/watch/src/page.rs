//! The page that shows a history in a browser: files that are embedded in the program, so that nothing is loaded from anywhere else.

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub struct PageFile {
    /// Its path on the server.
    pub path: &'static str,
    /// Its content type.
    pub kind: &'static str,
    /// Its content.
    pub text: &'static str,
}

/// All files of the page.
pub const FILES: [PageFile; 5] = [
    PageFile { path: "/", kind: "text/html; charset=utf-8", text: include_str!("../page/index.html") },
    PageFile { path: "/page.css", kind: "text/css; charset=utf-8", text: include_str!("../page/page.css") },
    PageFile { path: "/page.js", kind: "text/javascript; charset=utf-8", text: include_str!("../page/page.js") },
    PageFile {
        path: "/uplot/uPlot.min.css",
        kind: "text/css; charset=utf-8",
        text: include_str!("../page/uplot/uPlot.min.css"),
    },
    PageFile {
        path: "/uplot/uPlot.iife.min.js",
        kind: "text/javascript; charset=utf-8",
        text: include_str!("../page/uplot/uPlot.iife.min.js"),
    },
];

/// What a browser may load and run: the page's own files, and styles that the chart library sets on its elements.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_loaded_from_elsewhere_and_no_markup_is_made_of_text() {
        for file in FILES.iter().filter(|file| !file.path.starts_with("/uplot/")) {
            for forbidden in ["http://", "https://", "innerHTML", "insertAdjacentHTML", "document.write", "eval("] {
                assert!(!file.text.contains(forbidden), "{} has {forbidden}", file.path);
            }
        }
        let page = FILES[0].text;
        for file in &FILES[1..] {
            assert!(page.contains(&format!("\"{}\"", &file.path[1..])), "{} is not loaded", file.path);
        }
    }
}
