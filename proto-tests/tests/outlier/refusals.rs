//! A refusal names the outlier pattern.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::Outlier;
use proto_tests::sides::{COLLECTION, Sides};

#[test]
fn a_refusal_names_the_outlier_pattern_and_its_collection() -> Result<()> {
    let mut sides = Sides::on_a_standalone(Outlier::new("tags", (5, 7)))?;
    sides.alike(&doc! { "insert": COLLECTION, "documents": [{ "_id": 1, "tags": [1] }] })?;
    let database = sides.shaped_database();
    let shaped = format!("{database}.{COLLECTION}");
    let plain = format!("{database}.plain");
    sides
        .plain
        .command_ok(&doc! { "insert": "plain", "documents": [{ "_id": 1 }], "$db": &database })?;
    let graph =
        doc! { "from": COLLECTION, "startWith": "$n", "connectFromField": "n", "connectToField": "n", "as": "x" };
    let aggregate = |of: &str| doc! { "aggregate": of, "pipeline": [{ "$graphLookup": graph.clone() }], "cursor": {}, "$db": &database };
    let rename = |from: &str, to: &str| doc! { "renameCollection": from, "to": to, "$db": "admin" };
    let commands: [Document; 5] = [
        aggregate("plain"),
        aggregate(COLLECTION),
        rename(&shaped, &format!("{database}.other")),
        rename(&plain, &shaped),
        rename(&shaped, &shaped),
    ];
    for command in commands {
        let reply = sides.shaped.command(&command)?;
        let message = reply.get_str("errmsg").unwrap_or_default().to_owned();
        let is_right = message.contains("outlier pattern") && message.contains(&shaped);
        ensure!(
            is_right && !message.contains("bucket") && message.matches("outlier pattern").count() == 1,
            "{command}: {reply}"
        );
    }
    Ok(())
}
